#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""billion.py [--hours N] [--engine hwtd|redis] [--every S]

A billion tasks a day, for some time: 11,574 a second, and three times as many
in the middle tenth of each 10 minutes, or of the whole if that is shorter.
A task is due within a minute after its add. Each minute the engine is killed
with SIGKILL and started again, and in between connections of workers and adders
are cut with what they hold. Then the account of load.c: what was lost or early,
each second execution with its cause, lateness outside of kills and near them.

The exit status is 0 if nothing was lost, early, or executed again without a
cause; the rates were carried, that is, the adds were never more than a second
behind them outside of kills; and the lateness p99 outside of kills is below a
second. Run by make billion, HOURS=1."""
import argparse
import subprocess
import sys
import time

sys.dont_write_bytecode = True
from main import machine  # noqa: E402
from servers import LIMIT, SERVERS  # noqa: E402

RATE, PEAK = 11574, 34722
SPREAD, VISIBILITY = 60, 5  # seconds


def watch(server, client, given, seconds):
    """Kills the engine; prints what it uses. Returns how often it was killed,
    its most memory, and its CPU seconds."""
    kills, most, spent, cpu, begin = 0, 0, 0, 0, time.monotonic()
    while client.poll() is None:
        time.sleep(min(10, given.every / 4))
        passed = time.monotonic() - begin
        used, cpu = server.cpu() - cpu, server.cpu()
        spent += used
        most = max(most, server.memory())
        print(f'  {passed:6.0f} s   engine: CPU {used:.1f} s, '
              f'{server.memory() / 1e6:,.0f} MB   killed {kills} times',
              flush=True)
        if passed > (kills + 1) * given.every and passed < seconds:
            server.kill()
            server.start()
            kills, cpu = kills + 1, 0
        if passed > seconds + SPREAD + 20 * VISIBILITY + LIMIT:
            raise RuntimeError('the client does not end')
    return kills, most, spent


def account(found, kills, most, spent):
    """Prints it. Returns whether it adds up."""
    print(f'\nadded {found["added"]:,} in {found["add_s"]:,.0f} s, at most '
          f'{found["behind"]:,.0f} behind the rates\n'
          f'executed {found["executed"]:,}, {found["again"]:,} of them again: '
          f'the engine was killed {found["cut"]:,}, a connection was cut '
          f'{found["dropped"]:,}, a lease ended {found["late"]:,}, '
          f'unexplained {found["unexplained"]:,}\n'
          f'lost {found["lost"]:,}, early {found["early"]:,}\n'
          f'{kills} kills of the engine; its most memory {most / 1e6:,.0f} MB\n'
          f'CPU of a task: {spent * 1e6 / found["executed"]:.1f} us in the '
          f'engine, {found["cpu_s"] * 1e6 / found["executed"]:.1f} us in the '
          'client')
    for title, prefix in (('outside of kills', ''), ('near kills', 'kill_')):
        print(f'late, {title}: ' + ', '.join(
            f'{name} {found[prefix + name] / 1000:,.1f} ms'
            for name in ('p50', 'p99', 'max')))
    return (found['lost'] == found['early'] == found['unexplained'] == 0 and
            found['executed'] - found['again'] == found['added'] and
            found['behind'] <= PEAK and found['p99'] < 1e6)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument('--hours', type=float, default=1)
    parser.add_argument('--engine', choices=('hwtd', 'redis'), default='hwtd')
    parser.add_argument('--every', type=int, default=60)
    given = parser.parse_args()
    seconds = max(int(3600 * given.hours), 10)
    kind = {server.name: server for server in SERVERS}[given.engine]
    print(machine(), flush=True)
    with kind() as server:
        client = subprocess.Popen(
            [*server.client(), 'adders=4', 'workers=4',
             'batch=256', 'limit=256', f'rate={RATE}',
             f'peak={PEAK}', f'spread={SPREAD * 1000}', 'delay=100', 'kill=1',
             f'visibility={VISIBILITY * 1000}', f'seconds={seconds}',
             f'drop={given.every * 700}'], stdout=subprocess.PIPE, text=True)
        try:
            used = watch(server, client, given, seconds)
        finally:
            client.kill()
        words = client.communicate()[0].split()[1:]
    found = {name: float(value)
             for name, value in zip(words[::2], words[1::2])}
    right = client.returncode == 0 and account(found, *used)
    print('it adds up' if right else 'IT DOES NOT ADD UP')
    return 0 if right else 1


if __name__ == '__main__':
    sys.exit(main())
