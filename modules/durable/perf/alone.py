# SPDX-License-Identifier: Apache-2.0
"""What main.py measures of hwt_durable alone; its top says what."""

import collections
import glob
import json
import os
import subprocess
import tempfile
import time

from phases import Column, finish_client, start_client
from servers import (
    BUILD, LIMIT, ROOT, TICK, Redis, cpu_of, die_with_parent)

WORKERS = (1, 16, 64)
WORKERS_RATES = (1000, 50)
SETTLE = 5  # seconds: after 3 of adds, tasks are executed at their rate


def disk():
    """That of the scratch folders, which the servers' files are in."""
    with tempfile.NamedTemporaryFile(prefix="hwt-perf-") as file:
        kind, device = subprocess.run(
            ["findmnt", "-no", "FSTYPE,SOURCE", "-T", file.name],
            capture_output=True, text=True, check=True).stdout.split()[:2]
        times = []
        for _ in range(200):
            began = time.monotonic()
            file.write(bytes(4096))
            file.flush()
            os.fdatasync(file.fileno())
            times.append(time.monotonic() - began)
    times.sort()
    return (f"{kind} on {device}: 4 KiB more and fdatasync in "
            f"{times[100] * 1e6:.0f} us at p50, {times[198] * 1e6:.0f} at p99")


def machine():
    with open("/proc/cpuinfo", encoding="ascii", errors="replace") as file:
        models = [line.split(":")[1].strip() for line in file
                  if line.startswith("model name")]
    return (f"{os.cpu_count()} cores, {models[0] if models else 'unknown'}, "
            f"Linux {os.uname().release}; load "
            f"{os.getloadavg()[0]:.1f} before\n{disk()}")


def measure_neighbour(seconds):
    """neighbour.c says what it does; how late, in ms."""
    print(machine())
    with Redis() as server:
        done = subprocess.run(
            [os.path.join(BUILD, "neighbour"),
             f"127.0.0.1:{server.engine.port}", "600000",
             str(seconds)],
            stdout=subprocess.PIPE, text=True, check=False,
            timeout=seconds + 300,
            preexec_fn=die_with_parent)
    if done.returncode != 0:
        return 1
    found = json.loads(done.stdout)
    for name in ("before", "after"):
        late = found[name]
        print(f"{name:<8}p50 {late['p50']}, p99 {late['p99']}, "
              f"most {late['max']} ms")
    print(f"{found['noisy']} of the others executed; load "
          f"{os.getloadavg()[0]:.1f}")
    return 0


def measure_with_workers(rate, workers, seconds):
    """The phase late, with the shares of a core from SETTLE on."""
    with Redis(memory=True) as server:
        server.workers = workers
        process = start_client(server, "late", rate, SETTLE + seconds)
        try:
            time.sleep(SETTLE)
            began = time.monotonic()
            pids = (server.process.pid, process.pid)
            before = [cpu_of(pid) for pid in pids]
            time.sleep(seconds)
            after = [cpu_of(pid) for pid in pids]
            spent = time.monotonic() - began
        except BaseException:
            process.kill()
            raise
        found = finish_client(process)
    found["shares"] = [(b - a) / spent for a, b in zip(before, after)]
    return found


def measure_workers(seconds):
    print(machine())
    column = Column(Redis, seconds)

    def line(label, texts):
        print(f"    {label:<26}" + "".join(f"{text:>13}" for text in texts),
              flush=True)
    line("", (f"{workers} worker{'s' if workers > 1 else ''}"
              for workers in WORKERS))
    for rate in WORKERS_RATES:
        cells = []
        for workers in WORKERS:
            cells.append(measure_with_workers(rate, workers, seconds))
            column.judge(f"{rate}/s, {workers} workers", cells[-1])
        line(f"{rate} tasks/s: Redis, %",
             (f"{cell['shares'][0] * 100:.1f}" for cell in cells))
        line("  the process, %",
             (f"{cell['shares'][1] * 100:.1f}" for cell in cells))
        line("  late, p50/p99 ms",
             (f"{cell['p50']}/{cell['p99']}" for cell in cells))
        line("  added/s", (f"{cell['acknowledged'] / cell['seconds']:.0f}"
                           for cell in cells))
    print(f"load {os.getloadavg()[0]:.1f} after", *column.wrong, sep="\n")
    return 1 if column.wrong else 0


def threads_cpu(pid):
    """Seconds of CPU of each of its threads, by name."""
    spent = collections.Counter()
    for path in glob.glob(f"/proc/{pid}/task/*/stat"):
        with open(path, encoding="ascii") as file:
            name, rest = file.read().split("(", 1)[1].rsplit(")", 1)
        spent[name] += sum(map(int, rest.split()[11:13])) / TICK
    return spent


def http_program(*words, **options):
    return subprocess.Popen(
        words, text=True, preexec_fn=die_with_parent, **options)


def http_ask(server):
    print("", file=server.stdin, flush=True)
    return json.loads(server.stdout.readline())


def http_tasks(port, rate, count, first):
    """Tasks as lines of JSON, and where they lie."""
    payload = json.dumps({
        "url": f"http://127.0.0.1:{port}/paid", "body": json.dumps(
            {"event": "paid", "order": 123456, "amount": "12.34"})})
    file = tempfile.NamedTemporaryFile("w", prefix="hwt-http-")
    for i in range(count):
        print(json.dumps({"id": f"order-{i}", "queue": "hooks", "at":
                          round(first + i / rate, 6), "payload": payload}),
              file=file)
    file.flush()
    return file


def measure_http(rate, seconds, delay_ms):
    print(machine())
    programs = os.path.join(ROOT, "build/plain")
    settle = 3 + delay_ms // 1000
    count, most = rate * (2 * settle + seconds), 4 * rate * delay_ms // 1000
    most = max(most, rate // 5)
    with Redis() as redis:
        where = ["--redis", f"127.0.0.1:{redis.engine.port}"]
        subprocess.run([f"{programs}/hwtctl", "init", *where], check=True,
                       stdout=subprocess.DEVNULL)
        server = http_program(os.path.join(BUILD, "http"), str(delay_ms),
                              stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        first = time.time() + 2 + count / 20000
        with http_tasks(int(server.stdout.readline()), rate, count,
                        first) as file:
            subprocess.run(
                [f"{programs}/hwtctl", "add", "--from", file.name, *where],
                check=True, stdout=subprocess.DEVNULL)
        if time.time() > first:
            print("adding took too long")
            return 1
        hwtd = http_program(f"{programs}/hwtd", *where)
        http = http_program(
            f"{programs}/hwt-http", *where, "--queue=hooks",
            "--allow=127.0.0.1", f"--concurrency={most}",
            f"--per-host={most}")
        shares = {"Redis": redis.process, "hwtd": hwtd, "server": server}
        time.sleep(first + settle - time.time())
        calls = http_ask(server)["requests"]
        began = time.monotonic()
        before = threads_cpu(http.pid)
        others = {name: cpu_of(process.pid)
                  for name, process in shares.items()}
        time.sleep(seconds)
        found = http_ask(server)
        spent = time.monotonic() - began
        cpu = threads_cpu(http.pid) - before
        for name, process in shares.items():
            others[name] = cpu_of(process.pid) - others[name]
        calls += found["requests"]
        until = time.monotonic() + LIMIT
        while calls < count and time.monotonic() < until:
            time.sleep(1)
            calls += http_ask(server)["requests"]
        http.terminate()
        status = http.wait(LIMIT)
        hwtd.terminate()
        hwtd.wait(LIMIT)
        server.stdin.close()
        server.wait(LIMIT)

    def us(part):
        return f"{part * 1e6 / max(found['requests'], 1):.0f}"
    ours = cpu["hwt-calls"]
    for name, text in (
            ("calls/s", f"{found['requests'] / spent:.0f} of {rate}"),
            ("under way at most", f"{found['most']}"),
            ("late, p50/p99/max ms",
             f"{found['p50']}/{found['p99']}/{found['max']}"),
            ("CPU a call of hwt-http, us", us(sum(cpu.values()))),
            ("  of its calls' thread", us(ours)),
            ("  of the library's", us(sum(cpu.values()) - ours)),
            *((f"CPU a call of {name}, us", us(part))
              for name, part in others.items()),
            ("load after", f"{os.getloadavg()[0]:.1f}")):
        print(f"    {name:<30}{text:>16}")
    if calls == count and status == 0:
        return 0
    print(f"{calls} calls of {count} tasks; hwt-http ended with {status}")
    return 1
