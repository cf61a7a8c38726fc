#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""main.py [--only NAME ...] [--cases NAME ...] [--seconds N] [--rounds N]

hwt_durable beside what people would take instead: hwtd, Redis with hwt.so,
PostgreSQL with SKIP LOCKED, two sorted sets in Redis, BullMQ, Graphile Worker.
Each engine fsyncs before it acknowledges, and has one scratch folder for each
case. The client, load.c, or load.js for those of Node, is one thread beside the
engine; the file of each engine says who would call it unfair.

    add1, 16, 512   adds a second of one task by 1 and 16 connections, and in
                    batches of 512 by 4
    life16, 256     lives a second: add, take and finish, in batches
    late1000, 5000  at so many a second: from the due time until a worker has
                    the task, and CPU of a life
    bytes           RSS and disk of a task that waits
    kill            the engine is killed with SIGKILL under load, and started:
                    acknowledged and never executed; executed twice (not of
                    BullMQ and Graphile Worker)

The engines of Node are left out where npm has not installed them; the versions
are in rules.mk. Engines alternate within a round; a figure is the median of the
rounds, with the least and the most. Run by make perf-durable,
PERF='--rounds 5'."""
import argparse
import os
import platform
import statistics
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from servers import LIMIT, SERVERS  # noqa: E402

CASES = {
    'add1': 'adders=1 delay=3600000 seconds={s}',
    'add16': 'adders=16 delay=3600000 seconds={s}',
    'add512': 'adders=4 batch=512 delay=3600000 seconds={s}',
    'life16': 'adders=4 workers=4 batch=16 limit=16 window=20000 seconds={s}',
    'life256':
        'adders=2 workers=2 batch=256 limit=256 window=50000 seconds={s}',
    'late1000': 'adders=4 workers=2 limit=64 rate=1000 delay=1000 seconds={s}',
    'late5000': 'adders=4 workers=2 limit=64 batch=64 rate=5000 delay=1000 '
                'seconds={s}',
    'bytes': 'adders=4 batch=512 count={fill} delay=3600000',
    'kill': 'adders=4 workers=2 batch=16 limit=64 rate=5000 delay=500 '
            'visibility=2000 kill=1 seconds={s}',
}


def kill_in(server, seconds):
    time.sleep(seconds / 2)
    server.kill()
    server.start()


def measure(make, case, seconds):
    """The client's figures by name, with those of the server."""
    with make() as server:
        memory, disk = server.memory(), server.disk()
        client = subprocess.Popen(
            server.client() +
            CASES[case].format(s=seconds, fill=server.fill).split(),
            stdout=subprocess.PIPE, text=True)
        try:
            if client.stdout.readline() != 'ready\n':
                raise RuntimeError(f'{server.name}: the client has not begun')
            before = server.cpu()
            if case == 'kill':
                kill_in(server, seconds)
                before = 0  # the CPU of a part says nothing
            text, _ = client.communicate(timeout=LIMIT + 10 * seconds)
        finally:
            client.kill()
            client.wait()
        if client.returncode != 0:
            raise RuntimeError(f'{server.name}: the client failed in {case}')
        words = text.split()
        found = {name: float(value)
                 for name, value in zip(words[::2], words[1::2])}
        time.sleep(0.2)  # until children that end have been waited for
        found['server_s'] = server.cpu() - before
        found['memory'] = (server.memory() - memory) / server.fill
        found['disk'] = (server.disk() - disk) / server.fill
        return found


def figures(case, found):
    """What is shown of it: name, value."""
    if case.startswith('add'):
        tasks = max(found['added'], 1)
        yield 'adds/s', found['added'] / found['add_s']
    elif case == 'bytes':
        if found['memory'] > 0:
            yield 'RSS', found['memory']
        yield 'disk', found['disk']
        return
    elif case == 'kill':
        yield 'acknowledged', found['added']
        for name in ('lost', 'again', 'early'):
            yield name, found[name]
        return
    else:
        tasks = max(found['executed'], 1)
        if case.startswith('life'):
            yield 'lives/s', tasks / found['life_s']
        else:
            for name in ('p50', 'p99', 'max'):
                yield name + ' ms', found[name] / 1000
    yield 'engine us', found['server_s'] / tasks * 1e6
    yield 'client us', found['cpu_s'] / tasks * 1e6
    wrong = found['early'] + (0 if case.startswith('add') else found['lost'])
    if wrong:
        yield 'WRONG', wrong


def show(number):
    return f'{number:,.0f}' if number >= 100 or number == 0 else \
        f'{number:.1f}'


def print_case(case, rounds):
    """rounds: for each engine's name the figures of each round."""
    print(f'\n{case}: {CASES[case]}')
    for name, all_found in rounds.items():
        cells = []
        for column in dict(all_found[0]):
            values = [dict(found).get(column, 0) for found in all_found]
            text = show(statistics.median(values))
            if len(values) > 1 and column.endswith('/s'):
                text += f' ({show(min(values))}-{show(max(values))})'
            cells.append(f'{column} {text}')
        print(f'  {name:<12}' + '   '.join(cells))
    sys.stdout.flush()


def machine():
    with open('/proc/cpuinfo') as file:
        model = next((line.split(':')[1].strip() for line in file
                      if line.startswith('model name')), '')
    packages = subprocess.run(
        ['dpkg-query', '-W', '-f', '${Package} ${Version}, ', 'gcc',
         'redis-server', 'postgresql', 'nodejs'], stdout=subprocess.PIPE,
        text=True, check=False).stdout
    return (f'{model}, {os.cpu_count()} cores, Linux {platform.release()}, '
            f'{packages}load {os.getloadavg()[0]:.1f} before')


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    names = [server.name for server in SERVERS]
    parser.add_argument('--only', nargs='+', choices=names, default=names)
    parser.add_argument('--cases', nargs='+', choices=CASES,
                        default=list(CASES))
    parser.add_argument('--seconds', type=int, default=5)
    parser.add_argument('--rounds', type=int, default=3)
    given = parser.parse_args()
    print(machine())
    for case in given.cases:
        measured = [server for server in SERVERS if server.name in given.only
                    and (server.killed or case != 'kill')]
        rounds = {server.name: [] for server in measured}
        for _ in range(given.rounds):
            for server in measured:
                rounds[server.name].append(list(figures(
                    case, measure(server, case, given.seconds))))
        print_case(case, rounds)
    print(f'\nload {os.getloadavg()[0]:.1f} after')
    return 0


if __name__ == '__main__':
    sys.exit(main())
