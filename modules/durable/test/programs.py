# SPDX-License-Identifier: Apache-2.0
"""hwtctl and hwt-exec by what a user types, with real processes.

    programs.py [CLASS[.test] ...]

The last line counts."""
import os
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import hosts
from hosts import Server, main

BUILD = os.path.abspath(hosts.BUILD)
LIMIT = 30
NO, USAGE, SERVER = 1, 2, 3  # exit statuses


class Programs(unittest.TestCase):
    """A hwtd of its own for each test, and a folder for files."""

    def setUp(self):
        self.host = Server()
        self.addCleanup(self.host.close)
        self.folder = tempfile.TemporaryDirectory(prefix='hwt-programs-')
        self.addCleanup(self.folder.cleanup)
        self.started = []
        self.addCleanup(self.end_started)

    def end_started(self):
        for process in self.started:
            if process.poll() is None:
                process.kill()
            process.communicate()

    def command(self, name, *words):
        return [os.path.join(BUILD, name), *words[:1], '--server',
                f'127.0.0.1:{self.host.port}', '--timeout', '10s', *words[1:]]

    def ctl(self, *words, status=0, given=b''):
        """What hwtctl prints; its errors are in self.errors."""
        found = subprocess.run(
            self.command('hwtctl', *words), input=given, capture_output=True,
            timeout=LIMIT, check=False)
        self.errors = found.stderr.decode()
        self.assertEqual(found.returncode, status, self.errors)
        return found.stdout.decode()

    def start(self, name, *words, **more):
        """A worker."""
        process = subprocess.Popen(
            [os.path.join(BUILD, name), '--server',
             f'127.0.0.1:{self.host.port}', *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, **more)
        self.started.append(process)
        return process

    def end(self, process, number=signal.SIGTERM, status=0):
        """Standard output and standard error of a worker that has ended."""
        process.send_signal(number)
        out, errors = process.communicate(timeout=LIMIT)
        self.assertEqual(process.returncode, status, errors)
        return out, errors

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def read(self, name):
        try:
            with open(self.path(name)) as file:
                return file.read()
        except FileNotFoundError:
            return ''

    def shown(self, queue, name):
        """By name, what hwtctl show says."""
        lines = self.ctl('show', queue, name).splitlines()
        return {line[:20].strip(): line[21:] for line in lines}

    def until(self, condition, what):
        end = time.monotonic() + LIMIT
        while not condition():
            if time.monotonic() > end:
                self.fail(what() if callable(what) else what)
            time.sleep(0.02)

    def until_state(self, queue, name, state):
        self.until(lambda: self.shown(queue, name)['state'] == state,
                   lambda: f'{name} is not {state}: {self.shown(queue, name)}')


class Hwtctl(Programs):

    def test_add_prints_the_id_and_show_what_was_added(self):
        said = self.ctl('add', 'mail', 'hello', '--id', 'a', '--in', '1h',
                        '--attempts', '3', '--retry', '2s:5m', '--expires',
                        '2h', '--result', '1d')
        self.assertEqual(said, 'a\n')
        shown = self.shown('mail', 'a')
        self.assertEqual(
            [shown[name] for name in ('state', 'attempts', 'retry-first',
                                      'retry-most', 'expires', 'result',
                                      'payload')],
            ['waiting', '3', '2000', '300000', '7200000', '86400000', 'hello'])

    def test_add_without_an_id_makes_one_that_is_never_the_same(self):
        ids = {self.ctl('add', 'mail') for _ in range(3)}
        self.assertEqual(len(ids), 3)

    def test_a_payload_is_read_from_standard_input_with_all_its_bytes(self):
        self.ctl('add', 'mail', '-', '--id', 'a', given=b'\0\n\\x\xff')
        self.assertEqual(self.shown('mail', 'a')['payload'],
                         r'\x00\x0a\x5cx\xff')

    def test_a_payload_longer_than_the_server_takes_is_refused(self):
        self.ctl('add', 'mail', '-', given=b'x' * 65537, status=USAGE)
        self.ctl('add', 'mail', '-', given=b'x' * 1048577, status=USAGE)
        self.assertIn('1 MiB', self.errors)

    def test_add_of_an_id_that_is_there_changes_nothing_and_says_so(self):
        self.ctl('add', 'mail', 'one', '--id', 'a', '--in', '1h')
        self.ctl('add', 'mail', 'two', '--id', 'a')
        self.assertIn('waiting', self.errors)
        self.assertEqual(self.shown('mail', 'a')['payload'], 'one')

    def test_add_of_an_id_that_was_cancelled_fails(self):
        self.ctl('add', 'mail', '--id', 'a', '--in', '1h')
        self.ctl('cancel', 'mail', 'a')
        self.ctl('add', 'mail', '--id', 'a', status=NO)
        self.assertIn('cancelled', self.errors)

    def test_at_is_a_date_or_seconds_of_unix_time(self):
        self.ctl('add', 'mail', '--id', 'a', '--at', '2030-01-01T00:00:00Z')
        self.ctl('add', 'mail', '--id', 'b', '--at', '@1893456000')
        for name in 'ab':
            self.assertEqual(self.shown('mail', name)['due'],
                             '2030-01-01T00:00:00.000Z')

    def test_cancel_says_which_task_is_not_there(self):
        self.ctl('add', 'mail', '--id', 'a', '--in', '1h')
        self.ctl('cancel', 'mail', 'a', 'b', status=NO)
        self.assertNotIn('a:', self.errors.replace('hwtctl:', ''))
        self.assertIn('b: there is no such task', self.errors)
        self.assertEqual(self.shown('mail', 'a')['state'], 'cancelled')

    def test_reschedule_gives_another_due_time(self):
        self.ctl('add', 'mail', '--id', 'a', '--in', '1h')
        self.ctl('reschedule', 'mail', 'a', '--at', '@1893456000')
        self.assertEqual(self.shown('mail', 'a')['due'],
                         '2030-01-01T00:00:00.000Z')
        self.ctl('reschedule', 'mail', 'b', '--in', '1s', status=NO)

    def test_show_of_no_task_fails(self):
        self.ctl('show', 'mail', 'none', status=NO)
        self.assertIn('there is no such task', self.errors)

    def test_list_has_all_tasks_in_a_state(self):
        ids = {f'task-{i}' for i in range(250)}
        client = self.host.connect()
        words = [word for name in ids for word in (name, '')]
        client.call('HWT.ADD', '{hwt:mail}', 'IN', 3600000, 'TASKS', *words)
        client.close()
        lines = self.ctl('list', 'mail', 'waiting').splitlines()
        self.assertEqual({line.split('\t')[0] for line in lines}, ids)
        self.assertEqual(self.ctl('list', 'mail', 'dead'), '')

    def make_dead(self, *ids):
        client = self.host.connect()
        for name in ids:
            client.call('HWT.ADD', '{hwt:mail}', 'IN', 0, 'TASKS', name, 'x')
            task = client.call('HWT.TAKE', '{hwt:mail}', 'w', 1, 30000)[0]
            client.call('HWT.FINISH', '{hwt:mail}', 'FAIL', 'too\nbad',
                        'TASKS', task[0], task[1])
        client.close()

    def test_dead_letters_are_listed_with_reason_replayed_and_dropped(self):
        self.make_dead('a', 'b', 'c')
        lines = sorted(self.ctl('dead', 'mail').splitlines())
        self.assertEqual([line.split('\t')[0] for line in lines],
                         ['a', 'b', 'c'])
        self.assertTrue(lines[0].endswith('\ttoo\\x0abad'), lines[0])
        self.ctl('dead', 'mail', 'replay', 'a', 'z', status=NO)
        self.assertIn('z: there is no such task', self.errors)
        self.assertNotIn('a: there', self.errors)
        self.assertEqual(self.shown('mail', 'a')['state'], 'due')
        self.ctl('dead', 'mail', 'drop', 'b')
        self.ctl('show', 'mail', 'b', status=NO)

    def test_a_queue_is_paused_limited_and_resumed(self):
        said = self.ctl('queue', 'mail', '--pause', '--running', '3', '--rate',
                        '10', '--max', '1', '--level', 'memory')
        self.assertEqual(
            [line.split() for line in said.splitlines()],
            [['paused', '1'], ['running', '3'], ['rate', '10'], ['max', '1'],
             ['level', 'memory']])
        self.ctl('add', 'mail')
        self.ctl('add', 'mail', status=SERVER)
        said = self.ctl('queue', 'mail', '--resume', '--max', '0')
        self.assertEqual(said.splitlines()[0].split(), ['paused', '0'])
        self.ctl('add', 'mail')

    def test_stat_has_a_line_for_each_queue_of_the_space(self):
        self.ctl('add', 'mail', '--in', '1h')
        self.ctl('add', 'sms', '--in', '1h', '--space', 'other')
        self.ctl('add', 'q' * 64, '--in', '1h')
        lines = self.ctl('stat').splitlines()
        self.assertEqual([line.split() for line in lines], [
            'waiting due running done dead cancelled queue'.split(),
            ['1', *'00000', 'mail'], ['1', *'00000', 'q' * 64]])
        self.assertEqual(len({line.rindex(' ') for line in lines}), 1)
        said = self.ctl('stat', 'sms', '--space', 'other')
        self.assertEqual(said.splitlines()[0].split(), ['waiting', '1'])

    def test_a_schedule_is_a_task_that_is_added_and_cancelled(self):
        words = ('add', 'hwt.schedules', '-', '--id', 'beat', '--attempts',
                 '1000', '--result', '1ms')
        self.ctl(*words, given=b'queue mail\nevery 1\n\nhi')
        self.until(lambda: 'beat@' in self.ctl('list', 'mail', 'due'),
                   'no task of the schedule')
        name = self.ctl('list', 'mail', 'due').split('\t')[0]
        self.assertEqual(self.shown('mail', name)['payload'], 'hi')
        self.ctl('cancel', 'hwt.schedules', 'beat')
        self.assertEqual(self.ctl('list', 'hwt.schedules', 'waiting'), '')

    def test_bad_input_ends_with_usage_and_sends_nothing(self):
        for words in (
                [], ['none'], ['add'], ['add', 'q', 'a', 'b'],
                ['add', 'q', '--in', '5'], ['add', 'q', '--in', 'x'],
                ['add', 'q', '--in', '-1s'], ['add', 'q', '--in', '3651d'],
                ['add', 'q', '--in', '1s', '--at', '@1'],
                ['add', 'q', '--at', 'tomorrow'], ['add', 'q', '--at', '@ 5'],
                ['add', 'q', '--at', '2027-02-30T00:00:00Z'],
                ['add', 'q', '--at', '2099-01-01T00:00:00Z'],
                ['add', 'q', '--attempts', '0'],
                ['add', 'q', '--attempts', '1001'],
                ['add', 'q', '--retry', '5s'],
                ['add', 'q', '--retry', '5s:1s'], ['add', 'q', '--id', ''],
                ['add', 'q', '--id', 'x' * 65], ['add', 'q/r'],
                ['add', 'q', '--pause'], ['add', 'q', '--none'],
                ['cancel', 'q'], ['reschedule', 'q', 'a'],
                ['reschedule', 'q', 'a', '--in', '1s', '--at', '@1'],
                ['show', 'q'], ['show', 'q', 'x' * 65],
                ['list', 'q'], ['list', 'q', 'none'],
                ['dead', 'q', 'none'], ['dead', 'q', 'none', 'a'],
                ['dead', 'q', 'drop'], ['queue', 'q', '--level', 'none'],
                ['queue', 'q', '--pause', '--resume'],
                ['queue', 'q', '--rate', '1x'], ['stat', 'a', 'b'],
                ['stat', '--in', '1s']):
            with self.subTest(words):
                found = subprocess.run(
                    self.command('hwtctl', *words), capture_output=True,
                    timeout=LIMIT, check=False)
                self.assertEqual(found.returncode, USAGE, found.stderr)
                self.assertEqual(found.stdout, b'')
                self.assertNotEqual(found.stderr, b'')
        self.assertEqual(len(self.ctl('stat').splitlines()), 1)

    def test_a_server_that_is_not_there_is_named(self):
        self.host.kill()
        self.ctl('add', 'mail', '--timeout', '1s', status=SERVER)
        self.assertIn(str(self.host.port), self.errors)

    def test_a_password_is_needed_where_the_server_has_one(self):
        with open(self.path('password'), 'w') as file:
            file.write('secret\n')
        self.host.kill()
        self.host.more = ('--password-file', self.path('password'))
        self.host.start()
        self.ctl('add', 'mail', status=SERVER)
        self.assertIn('password', self.errors)
        self.ctl('add', 'mail', '--password-file', self.path('password'))

    def test_a_folder_is_a_server(self):
        words = ['--server', 'file:' + self.path('tasks')]
        self.ctl('add', 'mail', '--id', 'a', '--in', '1h', *words)
        self.assertIn('waiting', self.ctl('show', 'mail', 'a', *words))

    def test_help_and_version_go_to_standard_output(self):
        for name in ('hwtctl', 'hwt-exec', 'hwt-http'):
            for option in ('--help', '--version'):
                with self.subTest(name + ' ' + option):
                    found = subprocess.run(
                        [os.path.join(BUILD, name), option], timeout=LIMIT,
                        capture_output=True, check=True)
                    self.assertIn(name.encode(), found.stdout)
                    self.assertEqual(found.stderr, b'')


class HwtExec(Programs):

    def shell(self, script, *options):
        return self.start('hwt-exec', '--queue', 'mail', *options, '--', 'sh',
                          '-c', script, cwd=self.folder.name)

    def test_the_command_gets_payload_id_attempt_and_due_time(self):
        self.ctl('add', 'mail', 'a payload', '--id', 'a', '--at',
                 '@1700000000')
        worker = self.shell('cat; echo " $HWT_ID $HWT_ATTEMPT $HWT_DUE"')
        self.until_state('mail', 'a', 'done')
        self.assertEqual(self.end(worker)[0],
                         'a payload a 1 1700000000000\n')

    def test_the_command_has_no_connection_to_the_server(self):
        """Otherwise it would be open while the command outlives hwt-exec."""
        self.ctl('add', 'mail', '--id', 'a')
        worker = self.shell('ls -l /proc/self/fd | grep -c socket: || :')
        self.until_state('mail', 'a', 'done')
        self.assertEqual(self.end(worker)[0], '0\n')

    def test_a_payload_of_64_kib_need_not_be_read(self):
        payload = b'x' * 65536
        self.ctl('add', 'mail', '-', '--id', 'a', given=payload)
        self.ctl('add', 'mail', '-', '--id', 'b', given=payload)
        worker = self.shell('[ $HWT_ID = a ] || wc -c >size')
        self.until_state('mail', 'b', 'done')
        self.until_state('mail', 'a', 'done')
        self.end(worker)
        self.assertEqual(self.read('size').strip(), '65536')

    def test_any_failure_is_tried_again_until_no_attempt_is_left(self):
        self.ctl('add', 'mail', '--id', 'a', '--attempts', '3', '--retry',
                 '1ms:1ms')
        worker = self.shell('echo $HWT_ATTEMPT >>attempts; exit 7')
        self.until_state('mail', 'a', 'dead')
        self.assertIn('attempt 1: exit status 7', self.end(worker)[1])
        self.assertEqual(self.read('attempts'), '1\n2\n3\n')
        self.assertEqual(self.shown('mail', 'a')['reason'], 'exit status 7')

    def test_a_command_that_a_signal_ends_is_tried_again(self):
        self.ctl('add', 'mail', '--id', 'a', '--retry', '1ms:1ms')
        worker = self.shell('[ $HWT_ATTEMPT = 2 ] || kill -9 $$',
                            '--fail-status', '137,9')
        self.until_state('mail', 'a', 'done')
        self.ctl('add', 'mail', '--id', 'b', '--attempts', '1')
        self.until_state('mail', 'b', 'dead')
        self.assertIn('signal 9', self.end(worker)[1])
        self.assertEqual(self.shown('mail', 'b')['reason'],
                         'killed by signal 9')

    def test_a_fail_status_makes_a_dead_letter_at_once(self):
        self.ctl('add', 'mail', '--id', 'a', '--retry', '1ms:1ms')
        worker = self.shell('echo >>runs; exit 65', '--fail-status', '64,65')
        self.until_state('mail', 'a', 'dead')
        self.end(worker)
        self.assertEqual(self.read('runs'), '\n')
        self.assertEqual(self.shown('mail', 'a')['reason'], 'exit status 65')

    def test_a_command_that_is_not_there_is_tried_again(self):
        self.ctl('add', 'mail', '--id', 'a', '--attempts', '2', '--retry',
                 '1ms:1ms')
        worker = self.start('hwt-exec', '--queue', 'mail', '--',
                            '/no/such/command')
        self.until_state('mail', 'a', 'dead')
        self.assertIn('/no/such/command: No such file', self.end(worker)[1])
        self.assertIn('/no/such/command: No such file',
                      self.shown('mail', 'a')['reason'])

    def test_a_command_over_its_limit_is_killed_with_its_children(self):
        self.ctl('add', 'mail', '--id', 'a', '--retry', '1ms:1ms')
        worker = self.shell(
            '[ $HWT_ATTEMPT = 2 ] && exit; sleep 60 & echo $! >child; wait',
            '--limit', '500ms')
        self.until_state('mail', 'a', 'done')
        self.assertIn('ran too long', self.end(worker)[1])
        child = int(self.read('child'))
        self.until(lambda: not os.path.exists(f'/proc/{child}') or
                   ') Z' in open(f'/proc/{child}/stat').read(),
                   'the child runs')

    def test_jobs_run_at_the_same_time(self):
        for name in 'abc':
            self.ctl('add', 'mail', '--id', name)
        worker = self.shell(
            'touch $HWT_ID; while ! [ -e a -a -e b -a -e c ]; do sleep 0.05; '
            'done', '--jobs', '3')
        for name in 'abc':
            self.until_state('mail', name, 'done')
        self.end(worker)

    def test_queues_are_in_strict_order(self):
        self.ctl('queue', 'low', '--pause')
        self.ctl('queue', 'high', '--pause')
        self.ctl('add', 'low', '--id', 'l')
        self.ctl('add', 'high', '--id', 'h1')
        self.ctl('add', 'high', '--id', 'h2')
        self.ctl('queue', 'low', '--resume')
        self.ctl('queue', 'high', '--resume')
        worker = self.start('hwt-exec', '--queue', 'high,low', '--', 'sh',
                            '-c', 'echo $HWT_ID >>order',
                            cwd=self.folder.name)
        self.until(lambda: len(self.read('order').split()) == 3, 'no order')
        self.end(worker)
        # An idle worker asks each queue for one.
        self.assertLess(self.read('order').split().index('h1'), 2)

    def test_a_long_command_keeps_its_lease(self):
        self.ctl('add', 'mail', '--id', 'a')
        worker = self.shell('echo >>runs; sleep 3', '--visibility', '1s')
        other = self.shell('echo >>runs; sleep 3', '--visibility', '1s')
        self.until_state('mail', 'a', 'done')
        self.end(worker)
        self.end(other)
        self.assertEqual(self.read('runs'), '\n')

    def test_another_worker_executes_what_a_killed_one_had(self):
        self.ctl('add', 'mail', '--id', 'a')
        first = self.shell('echo $HWT_ATTEMPT >>runs; '
                           'exec sleep 5 >/dev/null 2>&1',
                           '--visibility', '1s')
        self.until(lambda: self.read('runs') == '1\n', 'not begun')
        self.end(first, signal.SIGKILL, -signal.SIGKILL)
        second = self.shell('echo $HWT_ATTEMPT >>runs', '--visibility', '1s')
        self.until_state('mail', 'a', 'done')
        self.end(second)
        self.assertEqual(self.read('runs'), '1\n2\n')

    def test_sigterm_waits_for_the_command_and_takes_no_further_task(self):
        self.ctl('add', 'mail', '--id', 'a')
        worker = self.shell('echo >>begun; sleep 1; echo >>ended')
        self.until(lambda: self.read('begun'), 'not begun')
        self.ctl('add', 'mail', '--id', 'b')
        self.end(worker)
        self.assertEqual(self.read('ended'), '\n')
        self.assertEqual(self.shown('mail', 'a')['state'], 'done')
        self.assertEqual(self.shown('mail', 'b')['state'], 'due')

    def test_what_does_not_end_within_the_grace_is_killed(self):
        self.ctl('add', 'mail', '--id', 'a', '--retry', '1h:1h')
        worker = self.shell('echo >>begun; sleep 60', '--grace', '200ms')
        self.until(lambda: self.read('begun'), 'not begun')
        self.assertIn('signal 9', self.end(worker, signal.SIGINT)[1])
        self.assertEqual(self.shown('mail', 'a')['state'], 'waiting')

    def test_it_goes_on_when_the_server_was_killed(self):
        worker = self.shell('true')
        self.ctl('add', 'mail', '--id', 'a')
        self.until_state('mail', 'a', 'done')
        self.host.kill()
        self.host.start()
        self.ctl('add', 'mail', '--id', 'b')
        self.until_state('mail', 'b', 'done')
        self.end(worker)

    def test_bad_input_ends_with_usage(self):
        for words in ([], ['--queue', 'q'], ['--', 'true'],
                      ['--queue', 'q', '--jobs', '0', '--', 'true'],
                      ['--queue', 'q', '--jobs', '257', '--', 'true'],
                      ['--queue', 'q', '--fail-status', '0', '--', 'true'],
                      ['--queue', 'q', '--fail-status', '256', '--', 'true'],
                      ['--queue', 'q', '--limit', '5', '--', 'true'],
                      ['--queue', 'q', '--visibility', '1ms', '--', 'true'],
                      ['--queue', 'q/r', '--', 'true'],
                      ['--queue', 'q', '--none', '--', 'true']):
            with self.subTest(words):
                worker = self.start('hwt-exec', *words)
                worker.communicate(timeout=LIMIT)
                self.assertEqual(worker.returncode, USAGE)


if __name__ == '__main__':
    main()
