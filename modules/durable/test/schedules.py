# SPDX-License-Identifier: Apache-2.0
"""Schedules of hwtd: which tasks they add, held against a second calendar that
looks at each minute; and that none is added twice or lost while hwtd is killed.

    schedules.py [--seconds N] [CLASS[.test] ...]

HWT_SEED seeds what is random.
"""
import calendar
import datetime
import os
import random
import time
import unittest
import zoneinfo

import hosts
from front import Front
from hosts import Faults, Redis, Server, main, take

QUEUE = '{hwt:hwt.schedules}'
DAY = 86400
ZONES = ['UTC', 'Europe/Berlin', 'America/New_York', 'Australia/Lord_Howe',
         'Africa/Casablanca', 'America/Nuuk', 'America/St_Johns',
         'Pacific/Chatham', 'Europe/Dublin', 'America/Santiago']
LOW, HIGH = [0, 0, 1, 1, 0], [59, 23, 31, 12, 7]
WORDS = [[], [], [], ['', *map(str.lower, calendar.month_abbr[1:])],
         ['sun', 'mon', 'tue', 'wed', 'thu', 'fri', 'sat']]


class Line:
    """A line of cron: the local days and minutes of the day that it names."""

    def __init__(self, text):
        minutes, hours, self.days, self.months, weekdays = (
            self.expand(field, at) for at, field in enumerate(text.split()))
        star = [field[0] == '*' for field in text.split()]
        self.wild = star[0] or star[1]
        self.both = star[2] or star[4]
        self.times = {hour * 60 + minute
                      for hour in hours for minute in minutes}
        self.weekdays = {day % 7 for day in weekdays}

    @staticmethod
    def expand(field, at):
        found = set()
        for item in field.lower().split(','):
            span, _, step = item.partition('/')
            first, _, last = span.partition('-')
            if span == '*':
                first, last = LOW[at], HIGH[at]
            first, last = (
                WORDS[at].index(each) if each in WORDS[at] else int(each)
                for each in (first, last or first))
            found |= set(range(first, last + 1, int(step or 1)))
        return found

    def names(self, local):
        """Whether it names a minute, as a clock in UTC would show it."""
        if local // 60 % 1440 not in self.times:
            return False
        date = datetime.date(1970, 1, 1) + datetime.timedelta(local // DAY)
        day = date.day in self.days
        weekday = (date.weekday() + 1) % 7 in self.weekdays
        return date.month in self.months and (
            day and weekday if self.both else day or weekday)

    def occurs(self, zone, begin, minutes):
        """At which of the minutes from begin on."""
        zone = zoneinfo.ZoneInfo(zone)
        found, latest = [], None
        # Three hours before tell what clocks have shown.
        for at in range(begin - 180 * 60, begin + 60 * minutes, 60):
            local = at + int(datetime.datetime.fromtimestamp(at, zone)
                             .utcoffset().total_seconds())
            latest = local - 60 if latest is None else latest
            if self.wild:
                occurs = self.names(local)
            else:
                occurs = any(map(self.names,
                                 range(latest + 60, local + 1, 60)))
            if occurs and at >= begin:
                found.append(at)
            latest = max(latest, local)
        return found


def changes(zone, year):
    """The first seconds of the days of UTC in which its clocks change."""
    first = calendar.timegm((year, 1, 1, 0, 0, 0))
    offset = [datetime.datetime.fromtimestamp(
        first + DAY * day, zoneinfo.ZoneInfo(zone)).utcoffset()
        for day in range(367)]
    return [first + DAY * day for day in range(366)
            if offset[day] != offset[day + 1]]


def field(chance, at):
    def value():
        return chance.randint(LOW[at], HIGH[at])
    if chance.random() < 0.3:
        return '*'
    if chance.random() < 0.2:
        return f'*/{chance.randint(1, HIGH[at] // 2)}'
    items = []
    for _ in range(chance.choice([1, 1, 2, 3])):
        first, last = sorted((value(), value()))
        items.append(chance.choice([
            f'{first}', f'{first}-{last}',
            f'{first}-{last}/{chance.randint(1, HIGH[at] // 2)}']))
    return ','.join(items)


def write_time(at):
    return time.strftime('%Y-%m-%dT%H:%M:%SZ', time.gmtime(at))


class Scheduled(unittest.TestCase):
    def start(self, wall=None):
        """A server, whose clock shows this time at first."""
        self.faults = Faults()
        if wall is not None:
            self.faults.set(wall_s=wall - time.time())
        self.host = Server(faults=self.faults)
        self.addCleanup(self.host.close)
        self.client = self.host.connect()
        self.addCleanup(lambda: self.client.close())

    def put(self, name, text, due=None):
        when = ('IN', 0) if due is None else ('DUE', due * 1000)
        self.assertEqual(self.client.call(
            'HWT.ADD', QUEUE, 'ATTEMPTS', 1000, 'RESULT', 0, *when, 'TASKS',
            name, text), [0])

    def wait(self, question, seconds=20):
        end = time.monotonic() + seconds
        while not question():
            self.assertLess(time.monotonic(), end)
            time.sleep(0.02)

    def schedule(self, name):
        return self.client.pairs('HWT.GET', QUEUE, name)

    def wait_settled(self, name):
        """It waits for an occurrence that has not come."""
        def settled():
            stat = self.client.pairs('HWT.STAT', QUEUE)
            schedule = self.schedule(name)
            return (schedule['state'] == b'waiting' and
                    schedule['due'] > stat['now'])
        self.wait(settled)

    def read_times(self, queue, name):
        """When it has occurred, in the queue's tasks that are taken."""
        found = []
        while tasks := take(self.client, queue, 1000):
            for identity, task in tasks.items():
                own, _, at = identity.decode().partition('@')
                self.assertEqual(own, name)
                self.assertEqual(write_time(task[4] // 1000), at)
                found.append(task[4] // 1000)
        return sorted(found)

    def reason(self, name, text):
        """Why it is a dead letter."""
        self.put(name, text)
        self.wait(lambda: self.schedule(name)['state'] == b'dead')
        return self.schedule(name)['reason'].decode()


class Occurs(Scheduled):
    def compare(self, chance, zone, wall):
        """Many lines, for the day until then but for the last minute."""
        self.start(wall - 59.5)
        lines = {}
        for i in range(12):
            text = ' '.join(field(chance, at) for at in range(5))
            if i % 2:
                text = ' '.join([*text.split()[:2], '* * *'])
            lines[f'n{i}'] = text
            self.put(f'n{i}', f'queue q{i}\ncron {text}\nzone {zone}\n'
                     f'late {DAY}\n\nx', wall - DAY)
        for i, (name, text) in enumerate(lines.items()):
            def worked_off():
                state = self.schedule(name)
                return state['state'] in (b'waiting', b'dead')
            self.wait(worked_off)
            if self.schedule(name)['state'] == b'dead':
                self.assertIn(b'never occurs',
                              self.schedule(name)['reason'], text)
                continue
            self.wait_settled(name)
            now = self.client.pairs('HWT.STAT', QUEUE)['now'] // 1000
            minutes = (now - (wall - DAY)) // 60 + 1
            self.assertEqual(self.read_times('{hwt:q%d}' % i, name),
                             Line(text).occurs(zone, wall - DAY, minutes),
                             f'{text} in {zone} at {wall}')
        self.host.kill()

    def test_any_line_when_clocks_change(self):
        seed = int(os.environ.get('HWT_SEED', random.randrange(10**6)))
        chance = random.Random(seed)
        for _ in range(int(max(3, hosts.SECONDS))):
            zone = chance.choice(ZONES)
            year = chance.choice([2026, 2027, 2028, 2037, 2038, 2051, 2090])
            wall = chance.choice(changes(zone, year) or
                                 [calendar.timegm((year, 2, 28, 0, 0, 0))])
            with self.subTest(seed=seed, zone=zone, year=year):
                self.compare(chance, zone, wall + DAY)

    def on(self, text, *day):
        """When it occurs on a day of UTC, in Berlin."""
        begin = calendar.timegm((*day, 0, 0, 0))
        self.start(begin + DAY - 30)
        self.put('n', f'queue q\ncron {text}\nzone Europe/Berlin\n'
                 f'late {DAY}\n\nx', begin)
        self.wait_settled('n')
        return [write_time(at)[11:16]
                for at in self.read_times('{hwt:q}', 'n')]

    def test_what_clocks_skip_and_what_they_show_twice(self):
        """Berlin: 2027-03-28 02:00 is 03:00, 2027-10-31 03:00 is 02:00."""
        spring, autumn = (2027, 3, 28), (2027, 10, 31)
        for text, day, times in (
                ('0,30 2 * * *', spring, ['01:00']),
                ('*/30 2 * * *', spring, []),
                ('0 2,3 * * *', autumn, ['00:00', '02:00']),
                ('*/30 2 * * *', autumn, ['00:00', '00:30', '01:00',
                                          '01:30']),
                # By the rule at the end of the file: a fifth Sunday.
                ('30 2 * * *', (2038, 10, 31), ['00:30'])):
            self.assertEqual(self.on(text, *day), times, text)

    def test_every_so_many_seconds(self):
        wall = calendar.timegm((2027, 1, 1, 0, 0, 0))
        self.start(wall + 100.5)
        self.put('n', 'queue q\nevery 7\n\npayload\n\n', wall)
        self.wait_settled('n')
        now = self.client.pairs('HWT.STAT', QUEUE)['now'] // 1000
        tasks = take(self.client, '{hwt:q}', 100)
        self.assertEqual({task[5] for task in tasks.values()},
                         {b'payload\n\n'})
        want = [at for at in range(wall, now + 1) if at % 7 == 0]
        self.assertEqual(sorted(task[4] // 1000 for task in tasks.values()),
                         want)

    def test_what_is_later_than_it_may_be_is_skipped(self):
        wall = calendar.timegm((2027, 1, 1, 12, 0, 0))
        self.start(wall - 58.5)
        self.put('n', 'queue q\nevery 60\nlate 600\n\nx', wall - 7200)
        self.wait_settled('n')
        self.assertEqual(self.read_times('{hwt:q}', 'n'),
                         list(range(wall - 600, wall, 60)))
        # A day without a server.
        self.host.kill()
        self.faults.set(wall_s=wall + DAY - 58.5 - time.time())
        self.host.start()
        self.client = self.host.connect()
        self.wait_settled('n')
        self.assertEqual(self.read_times('{hwt:q}', 'n'),
                         list(range(wall + DAY - 600, wall + DAY, 60)))

    def test_thousands_that_were_missed_are_all_added(self):
        wall = calendar.timegm((2027, 1, 1, 12, 0, 0))
        self.start(wall - 9.5)
        self.put('n', 'queue q\nevery 10\nlate 86400\n\nx', wall - DAY)
        self.wait_settled('n')
        times = self.read_times('{hwt:q}', 'n')
        self.assertEqual(times[:8640],
                         list(range(wall - DAY, wall, 10)))

    def test_options_are_those_of_add(self):
        self.start()
        self.put('n', 'queue q\nevery 1\nattempts 7\nretry 11 22\n'
                 'expires 333000\n\nx')
        self.wait(lambda: self.client.pairs('HWT.STAT', '{hwt:q}')['due'] +
                  self.client.pairs('HWT.STAT', '{hwt:q}')['waiting'] > 0)
        name = next(iter(take(self.client, '{hwt:q}', 1)))
        task = self.client.pairs('HWT.GET', '{hwt:q}', name)
        self.assertEqual([task[each] for each in (
            'attempts', 'retry-first', 'retry-most', 'expires', 'result')],
            [7, 11, 22, 333000, (3600 + DAY) * 1000])

    def test_a_schedule_that_is_wrong_says_why(self):
        self.start()
        for text, why in (
                ('', 'has a queue'), ('every 5', 'has a queue'),
                ('queue q', 'has a queue'),
                ('queue q\nevery 5\ncron * * * * *', 'has a queue'),
                ('queue a b\nevery 5', 'does not have the line: queue a b'),
                ('queue q\nevery 0', 'does not have the line: every 0'),
                ('queue q\nevery 5x', 'does not have the line: every 5x'),
                ('queue q\nevery 5\nlate 86401', 'does not have the line'),
                ('queue q\nevery 5\nfoo bar', 'does not have the line'),
                ('queue q\nevery 5\nfoo', 'does not have the line'),
                ('queue q\nevery 5\nattempts x', 'does not have the line'),
                ('queue q\nevery 5\nretry 5', 'does not have the line'),
                ('queue q\nevery 5\nattempts' + 8 * ' 1',
                 'does not have the line'),
                ('queue q\nevery 5\nattempts ' + 250 * ' ',
                 'does not have the line'),
                ('queue q\nevery 5\nresult 5', 'does not have the line'),
                ('queue q\ncron ' + '*' * 400, 'does not have the line'),
                ('queue q\ncron 60 * * * *', 'minute: want * or 0 to 59'),
                ('queue q\ncron * * * * foo', 'weekday: want * or 0 to 7'),
                ('queue q\ncron 5/2 * * * *', 'minute: want'),
                ('queue q\ncron 9-5 * * * *', 'minute: want'),
                ('queue q\ncron * * * * * *', 'five fields'),
                ('queue q\ncron * * * *', 'weekday: want'),
                ('queue q\ncron 0 0 30 2 *', 'never occurs'),
                ('queue q\ncron * * * * *\nzone ../etc/passwd',
                 'there is no ../etc'),
                ('queue q\ncron * * * * *\nzone No/Where', 'there is no'),
                ('queue q\ncron * * * * *\nzone Europe', 'there is no')):
            with self.subTest(text=text):
                name = f'n{random.randrange(10**9)}'
                self.assertIn(why, self.reason(name, text))
        self.assertIn('1 to 43 bytes', self.reason('n' * 44,
                                                   'queue q\nevery 1'))
        self.put('n' * 43, 'queue q\nevery 1\n\nx')
        self.wait(lambda: take(self.client, '{hwt:q}'))

    def test_a_schedule_is_ended_and_changed(self):
        self.start()
        self.put('n', 'queue q\nevery 1\n\nx')
        self.wait(lambda: take(self.client, '{hwt:q}'))
        self.assertEqual(self.client.call('HWT.CANCEL', QUEUE, 'n'), [1])
        self.put('n', 'queue other\nevery 1\n\nx')
        self.wait(lambda: take(self.client, '{hwt:other}'))

    def test_a_full_queue_is_tried_again(self):
        self.start()
        self.client.call('HWT.QUEUE', '{hwt:q}', 'MAX', 2)
        self.put('n', 'queue q\nevery 1\n\nx')
        self.wait(lambda: 'is full' in self.host.log())
        self.assertNotEqual(self.schedule('n')['state'], b'dead')
        self.client.call('HWT.QUEUE', '{hwt:q}', 'MAX', 0)
        self.wait_settled('n')
        times = self.read_times('{hwt:q}', 'n')
        self.assertGreaterEqual(len(times), 3)
        self.assertEqual(times, list(range(times[0], times[-1] + 1)))


class Kills(Scheduled):
    """hwtd is killed at any time; each second is added once."""

    def check_once(self, connect, restart, seconds):
        client = connect()
        for name in ('a', 'b', 'c'):
            client.call('HWT.ADD', QUEUE, 'ATTEMPTS', 1000, 'RESULT', 0, 'IN',
                        0, 'TASKS', name, f'queue q\nevery 1\nlate {DAY}\n\nx')
        end = time.monotonic() + seconds
        kills, seen = 0, {}
        while time.monotonic() < end or len(seen) < 12:
            time.sleep(random.random() * 0.7)
            client.close()
            restart()
            kills += 1
            client = connect()
            self.collect(client, seen)
        # Leases of what was killed end after ten seconds.
        time.sleep(12)
        self.collect(client, seen)
        client.close()
        for name in ('a', 'b', 'c'):
            times = sorted(at for own, at in seen if own == name)
            self.assertEqual(times, list(range(times[0], times[-1] + 1)))
            self.assertGreaterEqual(times[-1], time.time() - 3)
        print(f'  {type(self).__name__}: {kills} kills, {len(seen)} tasks, '
              'each once')

    def collect(self, client, seen):
        tasks = take(client, '{hwt:q}', 1000) or {}
        for identity, task in tasks.items():
            name, _, at = identity.decode().partition('@')
            key = name, task[4] // 1000
            self.assertEqual(write_time(key[1]), at)
            self.assertEqual(task[2], 1)
            self.assertNotIn(key, seen)
            seen[key] = True
        if tasks:
            client.call('HWT.FINISH', '{hwt:q}', 'DONE', 'TASKS',
                        *[word for task in tasks.values()
                          for word in task[:2]])

    def test_in_its_own_store(self):
        self.start()

        def restart():
            self.host.kill()
            self.host.start()
        self.check_once(self.host.connect, restart, hosts.SECONDS)

    def test_two_on_one_redis(self):
        redis = Redis()
        self.addCleanup(redis.close)
        fronts = [Front(redis) for _ in range(2)]
        for front in fronts:
            self.addCleanup(front.close)

        def restart():
            front = random.choice(fronts)
            front.kill()
            front.start()
        self.check_once(redis.connect, restart, hosts.SECONDS)


if __name__ == '__main__':
    main()
