# SPDX-License-Identifier: Apache-2.0
"""Tests of hwt_durable.py, with a real engine."""

import errno
import gc
import math
import os
import sys
import threading
import time
import unittest
import weakref

import hwt
import hwt_durable
from hwt_durable import (
    Fail, Missed, Retry, State, Task, finish, next_occurrence)
from test_hwt import (
    TOP, check_functions, check_layout, interrupted, run_program)

sys.path.insert(0, os.path.join(TOP, "modules/durable/test"))
import engine as engines  # noqa: E402


def setUpModule():
    global engine
    engine = engines.Engine(
        appendonly="yes", appendfsync="always",
        no_appendfsync_on_rewrite="no")


def tearDownModule():
    engine.close()


class Space(unittest.TestCase):
    """A space of its own for each test."""

    def setUp(self):
        self.timer = hwt.Timer(tick=0.001)
        self.logged = []
        self.client = self.open()

    def open(self, **more):
        return hwt_durable.Client(
            f"unix:{engine.socket_path}", self._testMethodName[-32:],
            timer=self.timer, log=lambda *told: self.logged.append(told),
            **{"shards": 1, "slots": 8, "tick": 0.001, "create": True,
               **more})

    def tearDown(self):
        self.client.close()
        self.timer.close()
        self.assertEqual(
            (hwt_durable._live, hwt_durable._callables), ([], {}))

    def wait_for(self, id):
        while True:
            state = self.client.find(id).state
            if state > State.RUNNING:
                return state
            time.sleep(0.001)


class Producer(Space):
    def test_tasks_are_added_found_moved_and_cancelled(self):
        due = math.floor(time.time()) + 3600.5
        id = b"a\0\xff"
        self.assertTrue(self.client.add(id, "mail", b"\0x", 3600))
        self.assertFalse(self.client.add(id, "other", "text"))
        info = self.client.find(id)
        self.assertEqual(
            (info.state, info.queue, info.payload, info.max_attempts),
            (State.PENDING, "mail", b"\0x", 20))
        self.assertTrue(self.client.reschedule(id, due=due))
        info = self.client.find(id)
        self.assertEqual((info.due, info.generation), (due, 2))
        self.assertTrue(self.client.cancel(id))
        self.assertFalse(self.client.reschedule(id, 1))
        self.assertFalse(self.client.cancel("none"))
        self.assertIsNone(self.client.find("none"))
        self.assertEqual(self.client.stats()["cancelled"], 1)

    def test_a_batch_tells_of_each(self):
        self.assertEqual(self.client.add_all([]), [])
        self.assertTrue(self.client.add("a", "mail", "x" * 65536, 3600))
        self.assertEqual(self.client.find("a").payload, b"x" * 65536)
        self.assertEqual(
            self.client.add_all([Task("a", "mail"), Task("b", "mail", "", 9)]),
            [False, True])
        with self.assertRaises(hwt.Error) as caught:
            self.client.add_all([Task("", "mail"), Task("c", "mail")])
        self.assertEqual(
            (caught.exception.errno, caught.exception.results),
            (errno.EINVAL, [errno.EINVAL, errno.ECANCELED]))
        self.assertIsNone(self.client.find("c"))

    def test_what_a_task_says_of_itself_is_found(self):
        until = math.floor(time.time()) + 3600.5
        self.client.add("a", "mail", delay=60, expires_at=until)
        self.assertEqual(self.client.find("a").expires, until)
        self.client.add_all([Task("b", "mail", delay=60, expires=90),
                             Task("c", "mail", delay=60)])
        info = self.client.find("b")
        self.assertAlmostEqual(info.expires - info.due, 30, 2)
        self.assertIsNone(self.client.find("c").expires)
        self.client.add("e", "mail", delay=60, retry_first=9, retry_factor=1.5,
                        retry_most=60)
        info = self.client.find("e")
        self.assertEqual(
            (info.retry_first, info.retry_factor, info.retry_most),
            (9, 1.5, 60))
        for priority in hwt_durable.Priority:
            self.client.add(priority.name, "mail", priority=priority, delay=60)
            self.assertEqual(self.client.find(priority.name).priority,
                             priority)
        with self.assertRaises(hwt.Error):
            self.client.add("d", "mail", delay=60, expires=59)

    def test_a_queue_is_limited(self):
        running, most = set(), []

        def work(task):
            running.add(task.id)
            most.append(len(running))
            time.sleep(0.01)
            running.discard(task.id)

        self.client.limit("mail", at_once=64)
        with self.assertRaises(hwt.Error):
            self.client.limit("mail", rate=-1)
        with hwt_durable.Scheduler(self.client), hwt_durable.Worker(
                self.client, "mail", work, threads=4):
            for each in range(9):
                self.client.add(str(each), "mail")
            for each in range(9):
                self.assertEqual(self.wait_for(str(each)), State.SUCCEEDED)
        self.assertLessEqual(max(most), 4)

    def test_a_queue_is_paused_and_resumed(self):
        self.client.pause("mail")
        with hwt_durable.Scheduler(self.client), hwt_durable.Worker(
                self.client, "mail", lambda task: None):
            self.client.add("a", "mail")
            while self.client.find("a").state != State.DELIVERED:
                time.sleep(0.001)
            self.client.resume("mail")
            self.assertEqual(self.wait_for("a"), State.SUCCEEDED)
        for call in (self.client.pause, self.client.resume):
            with self.assertRaises(hwt.Error):
                call("not a queue")

    def test_a_schedule_is_put_listed_and_dropped(self):
        put, listed = self.client.put_schedule, self.client.schedules
        put("tick", "q", b"a\0b", every=3600)
        put("daily", "q", cron="30 2 * * *", zone="Europe/Paris",
            missed=Missed.ALL, max_attempts=3)
        put("daily", "q", cron="30 2 * * *", zone="Europe/Paris",
            missed=Missed.ALL, max_attempts=3)
        daily, tick = sorted(listed())
        self.assertEqual(tick[:9], (
            "tick", "q", b"a\0b", 3600, None, None, Missed.LAST, 20, None))
        self.assertEqual(daily[:9], (
            "daily", "q", b"", 0, "30 2 * * *", "Europe/Paris", Missed.ALL, 3,
            None))
        self.assertEqual(daily[10:], (0, 0, 0, 0, hwt_durable.Priority.NORMAL))
        put("tick", "q", every=3600, expires=90, retry_first=9,
            retry_factor=1.5, priority=hwt_durable.Priority.LOW)
        self.assertEqual(listed("tick")[0][10:],
                         (90, 9, 1.5, 600, hwt_durable.Priority.LOW))
        self.assertEqual(tick.next % 3600, 0)
        self.assertEqual(listed("daily"), [daily])
        self.assertTrue(self.client.drop_schedule("daily"))
        self.assertFalse(self.client.drop_schedule("daily"))
        self.assertEqual((listed("daily"), len(listed())), ([], 1))
        with self.assertRaisesRegex(ValueError, "hour: 24 is not 0 to 23"):
            put("daily", "q", cron="30 24 * * *")
        with self.assertRaises(hwt.Error):
            put("no name", "q", every=60)
        self.assertEqual(next_occurrence(7, every=60), 60)
        self.assertEqual(next_occurrence(7, cron="0 1 * * *"), 3600)

    def test_a_schedule_adds_tasks(self):
        self.client.put_schedule("tick", "q", b"p", every=1)
        came = threading.Event()
        tasks = []
        with hwt_durable.Scheduler(self.client), hwt_durable.Worker(
                self.client, "q",
                lambda task: (tasks.append(task), came.set())):
            came.wait()
        at = time.strftime("tick@%Y-%m-%dT%H:%M:%SZ",
                           time.gmtime(tasks[0].due))
        self.assertEqual((tasks[0].id, tasks[0].payload),
                         (at.encode(), b"p"))
        last = self.client.schedules("tick")[0].last
        self.assertGreaterEqual(last or math.inf, tasks[0].due)

    def test_a_worker_may_have_several_queues(self):
        with hwt_durable.Scheduler(self.client), hwt_durable.Worker(
                self.client, ["a", "b"], lambda task: None):
            for id in "ab":
                self.client.add(id, id)
                self.assertEqual(self.wait_for(id), State.SUCCEEDED)
        with self.assertRaisesRegex(ValueError, "has a comma"):
            hwt_durable.Worker(self.client, ["a,b"], lambda task: None)

    def test_errors(self):
        for bad in ({"delay": -1}, {"due": math.nan}, {"queue": "a\0b"}):
            with self.assertRaises(ValueError):
                self.client.add("a", **{"queue": "mail", **bad})
        with self.assertRaises(hwt.Error):
            self.client.add("a", "not a queue")
        with self.assertRaises(hwt.Error) as caught:
            self.open(shards=2)
        self.assertEqual(caught.exception.errno, errno.EEXIST)
        self.assertIn("another shape", self.logged[0][1])
        other = self.open()
        with hwt_durable.Scheduler(other):
            with self.assertRaises(hwt.Error) as caught:
                other.close()
            self.assertEqual(caught.exception.errno, errno.EBUSY)
        with self.assertRaises(hwt.Error) as caught:
            other._call(lambda _pointer: other.close())
        self.assertEqual(caught.exception.errno, errno.EBUSY)
        other.close()
        other.close()
        for call in (other.stats, lambda: hwt_durable.Scheduler(other),
                     lambda: hwt_durable.Worker(other, "mail", print)):
            with self.assertRaises(ValueError):
                call()
        with self.assertRaises(hwt.Error):
            hwt_durable.Worker(self.client, "mail", print, threads=9999)


    def test_nothing_stays_open_wherever_a_handler_raises(self):
        def connections():
            with engine.client() as client:
                return client("CLIENT", "LIST").count(b"\n")

        before = connections()
        for call in (
                self.open,
                lambda: hwt_durable.Scheduler(self.client),
                lambda: hwt_durable.Worker(self.client, "mail", print)):
            for _ in interrupted(call, 40):
                for each in hwt_durable._live[1:]:
                    each._end()
        until = time.monotonic() + 60
        while connections() > before:
            self.assertLess(time.monotonic(), until)
            time.sleep(0.001)

    def test_what_is_closed_is_so_wherever_a_handler_raises(self):
        others = [self.open() for _ in range(40)]
        left = iter(others)
        for _ in interrupted(lambda: next(left).close(), 40):
            pass
        for each in others:
            each.close()

    def test_no_call_begins_while_it_closes(self):
        def close(pointer):
            with self.assertRaises(ValueError):
                other.stats()
            with self.assertRaises(hwt.Error) as caught:
                other._close(close)
            self.assertEqual(caught.exception.errno, errno.EBUSY)
            return real(pointer)

        other = self.open()
        real = hwt_durable._lib.hwt_durable_close
        self.assertEqual(other._close(close), 0)
        other.close()


class Execution(Space):
    def setUp(self):
        super().setUp()
        self.scheduler = hwt_durable.Scheduler(self.client)

    def tearDown(self):
        self.scheduler.stop()
        super().tearDown()

    def test_a_worker_executes(self):
        ran, hooked = [], []
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: hooked.append(told.exc_type)

        def execute(task):
            ran.append((task.id, task.payload, task.attempt))
            self.assertEqual(task.queue, "mail")
            if task.id == b"fails":
                raise Fail
            if task.id == b"again" and task.attempt == 1:
                raise Retry(0.001)
            if task.id == b"later":
                raise Retry(3600)
            if task.id == b"breaks":
                raise KeyError if task.attempt == 1 else Fail
            if task.id == b"wrong":
                raise Retry(-1)

        try:
            with hwt_durable.Worker(self.client, "mail", execute, threads=2):
                for id in ("done", "fails", "again", "later"):
                    self.client.add(id, "mail", id)
                self.client.add("breaks", "mail", max_attempts=1)
                self.client.add("wrong", "mail", max_attempts=1)
                ends = [self.wait_for(id) for id in (
                    "done", "fails", "again", "breaks", "wrong")]
                while self.client.find("later").due < time.time() + 3000:
                    time.sleep(0.001)
        finally:
            sys.unraisablehook = before
        self.assertEqual(ends, [
            State.SUCCEEDED, State.FAILED, State.SUCCEEDED, State.FAILED,
            State.FAILED])
        self.assertEqual(sorted(hooked, key=str), [KeyError, ValueError])
        self.assertEqual(sorted(ran), sorted([
            (b"done", b"done", 1), (b"fails", b"fails", 1),
            (b"again", b"again", 1), (b"again", b"again", 2),
            (b"later", b"later", 1), (b"breaks", b"", 1),
            (b"wrong", b"", 1)]))

    def test_an_exception_that_breaks_is_a_failure(self):
        class Mute(Exception):
            def __str__(self):
                raise ValueError

        class MuteFail(Mute, Fail):
            pass

        class Blank(Retry):
            def __init__(self):
                pass  # no delay_ns

        def execute(task):
            raise {b"mute": Mute, b"fail": MuteFail, b"blank": Blank}[task.id]

        hooked = []
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: hooked.append(told.exc_type)
        try:
            with hwt_durable.Worker(self.client, "mail", execute):
                for id, attempts in (("mute", 1), ("fail", 20), ("blank", 1)):
                    self.client.add(id, "mail", max_attempts=attempts)
                    self.assertEqual(self.wait_for(id), State.FAILED)
        finally:
            sys.unraisablehook = before
        self.assertEqual(hooked, [Mute, AttributeError])
        with engine.client() as client:
            key = f"{{{self._testMethodName[-32:]}:0}}:e:fail"
            self.assertIn(b"MuteFail: str() failed", client("GET", key))

    def test_a_callable_may_finish_later(self):
        tokens = {}

        def execute(task):
            tokens[task.id, task.attempt] = task.token
            return hwt_durable.LATER

        def token(id, attempt=1):
            while (id, attempt) not in tokens:
                time.sleep(0.001)
            return tokens[id, attempt]

        with hwt_durable.Worker(self.client, "mail", execute, outstanding=8):
            for id in ("done", "fails", "again"):
                self.client.add(id, "mail")
            self.assertRaises(TypeError, finish, token(b"done"), 0)
            self.assertEqual(
                self.client.find("done").state, State.RUNNING)
            self.assertTrue(finish(token(b"done")))
            self.assertFalse(finish(token(b"done")))
            self.assertTrue(finish(token(b"fails"), Fail("no card")))
            self.assertTrue(finish(token(b"again"), Retry(0.001)))
            given = token(b"again", 2)
            del tokens[b"again", 2]
            self.assertTrue(finish(given, hwt_durable.Release()))
            self.assertTrue(finish(token(b"again", 2)))
            self.assertEqual(
                [self.wait_for(id) for id in ("done", "fails", "again")],
                [State.SUCCEEDED, State.FAILED, State.SUCCEEDED])
        with engine.client() as client:
            key = f"{{{self._testMethodName[-32:]}:0}}:e:fails"
            self.assertIn(b"Fail: no card", client("GET", key))

    def test_it_is_too_late_to_finish_after_the_end(self):
        tokens = []

        def execute(task):
            tokens.append(task.token)
            return hwt_durable.LATER

        with self.open() as other:
            worker = hwt_durable.Worker(other, "mail", execute)
            self.client.add("a", "mail")
            while not tokens:
                time.sleep(0.001)
            while not worker.stop(0.001):
                pass
            self.assertFalse(finish(tokens[0]))
        # The library is not asked: the token refers to what is freed.
        library, hwt_durable._lib = hwt_durable._lib, None
        try:
            for outcome in (None, Retry(), Fail("no card")):
                self.assertFalse(finish(tokens[0], outcome))
        finally:
            hwt_durable._lib = library

    def test_stop_waits_for_the_callable(self):
        began, may_end, errors = threading.Event(), threading.Event(), []

        class Callable:
            def __call__(self, _task):
                try:
                    worker.stop()
                except hwt.Error as error:
                    errors.append(error.errno)
                began.set()
                may_end.wait(60)

        callable = Callable()
        gone = weakref.ref(callable)
        worker = hwt_durable.Worker(self.client, "mail", callable)
        del callable
        self.client.add("a", "mail")
        self.assertTrue(began.wait(60))
        self.assertEqual(errors, [errno.EDEADLK])
        self.assertFalse(worker.stop(0.001))
        threading.Timer(0.02, may_end.set).start()
        self.assertTrue(worker.stop())
        self.assertTrue(worker.stop())
        gc.collect()
        self.assertIsNone(gone())
        self.assertEqual(self.wait_for("a"), State.SUCCEEDED)


class Process(unittest.TestCase):
    def test_a_program_may_end_while_a_worker_runs(self):
        said = run_program(f"""
import hwt_durable, threading, time
client = hwt_durable.Client("unix:{engine.socket_path}", "end", tick=0.001,
                            shards=1, slots=8, create=True)
began = threading.Event()
def execute(task):
    began.set()
    time.sleep(0.2)
    print("ran", flush=True)
scheduler = hwt_durable.Scheduler(client)
worker = hwt_durable.Worker(client, "mail", execute)
client.add("a", "mail")
began.wait()
""")
        self.assertEqual((said.stdout, said.stderr), ("ran\n", ""))

    def test_a_forked_child_gets_errors(self):
        said = run_program(f"""
import errno, hwt, hwt_durable, os, sys
client = hwt_durable.Client("unix:{engine.socket_path}", "fork", shards=1,
                            slots=8, create=True)
worker = hwt_durable.Worker(client, "mail", print)
pid = os.fork()
if pid == 0:
    for call in (client.stats, worker.stop):
        try:
            call()
        except hwt.Error as error:
            print(error.errno == errno.EOWNERDEAD)
    sys.exit(0)
os.waitpid(pid, 0)
print(worker.stop())
""")
        self.assertEqual(
            (said.stdout, said.stderr), ("True\nTrue\nTrue\n", ""))


class Layout(unittest.TestCase):
    def test_sizes_and_offsets(self):
        check_layout(self, "modules/durable/hwt_durable.h", {
            "hwt_durable_options": hwt_durable._Options,
            "hwt_durable_task": hwt_durable._Task,
            "hwt_durable_info": hwt_durable._Info,
            "hwt_durable_schedule": hwt_durable._Schedule,
            "hwt_durable_schedule_info": hwt_durable._ScheduleInfo,
            "hwt_durable_stats": hwt_durable._Stats,
            "hwt_durable_delivery": hwt_durable._Delivery,
            "hwt_durable_worker_options": hwt_durable._WorkerOptions,
            "hwt_durable_scheduler_options": hwt_durable._SchedulerOptions,
            "hwt_log": hwt_durable._Log,
        })

    def test_functions(self):
        check_functions(self, "modules/durable/hwt_durable.h",
                        hwt_durable._lib, "hwt_durable_worker_stats_write")


if __name__ == "__main__":
    unittest.main()
