# SPDX-License-Identifier: Apache-2.0
"""Tests of hwt.py. Time is moved by hand where threads are not the subject."""

import asyncio
import ctypes
import errno
import gc
import math
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import weakref

import hwt

HERE = os.path.dirname(os.path.abspath(__file__))
TOP = os.path.dirname(os.path.dirname(HERE))


def manual(**options):
    return hwt.Timer(tick=0.001, manual=True, **options)


class Manual(unittest.TestCase):
    def setUp(self):
        self.runs = []
        self.timer = manual()

    def tearDown(self):
        self.timer.close()
        self.assertEqual(len(hwt._scheduled), 0)

    def run_with(self, value):
        return lambda: self.runs.append(value)

    def test_runs_once_when_due(self):
        timeout = self.timer.schedule(self.run_with(1), 0.005)
        self.assertEqual(self.timer.next_wakeup(), 0.005)
        self.assertEqual(self.timer.pending, 1)
        self.assertEqual(timeout.remaining(), 0.005)
        self.assertEqual(self.timer.advance(0.004), 0)
        self.assertEqual(self.timer.advance(0.001), 1)
        self.assertEqual(self.timer.advance(1), 0)
        self.assertEqual(self.runs, [1])
        self.assertIsNone(timeout.remaining())
        self.assertFalse(timeout.cancel())
        self.assertFalse(timeout.reschedule(1))
        self.assertEqual(self.timer.next_wakeup(), math.inf)

    def test_cancel_and_reschedule(self):
        first = self.timer.schedule(self.run_with(1), 0.005)
        second = self.timer.schedule(self.run_with(2), 0.005)
        self.assertTrue(first.cancel())
        self.assertFalse(first.cancel(wait=True))
        self.assertTrue(second.reschedule(0.02))
        self.assertEqual(self.timer.advance(0.019), 0)
        self.assertEqual(self.timer.advance(0.001), 1)
        self.assertEqual(self.runs, [2])

    def test_periodic_until_cancelled_in_its_own_callable(self):
        def run():
            self.runs.append(1)
            if len(self.runs) == 3:
                self.assertFalse(timeout.cancel(wait=True))

        timeout = self.timer.schedule(run, 0.002, 0.003)
        self.assertEqual(self.timer.advance(0.002), 1)
        self.assertEqual(self.timer.advance(0.003), 1)
        self.assertEqual(self.timer.advance(0.003), 1)
        self.assertEqual(self.timer.advance(1), 0)
        self.assertEqual(len(self.runs), 3)

    def test_times_out_of_range_are_errors(self):
        never = self.timer.schedule(self.run_with(1), math.inf)
        for bad in (-1, -1e-12, math.nan, 2**63 / 1e9, 1e300, -math.inf):
            with self.assertRaises(ValueError):
                self.timer.schedule(self.run_with(1), bad)
            with self.assertRaises(ValueError):
                never.reschedule(bad)
        with self.assertRaises(hwt.Error):
            self.timer.schedule(self.run_with(1), 1, 0)
        self.timer.advance(10**9)
        self.assertEqual(never.remaining(), math.inf)
        self.assertEqual((self.runs, self.timer.pending), ([], 1))
        never.cancel()

    def test_errors_have_errno_and_the_words_of_the_library(self):
        self.timer.close()
        with self.assertRaises(hwt.Error) as caught:
            self.timer.schedule(self.run_with(1), 1)
        self.assertEqual(caught.exception.errno, errno.ESHUTDOWN)
        self.assertIn("stop", str(caught.exception))
        with self.assertRaises(hwt.Error):
            hwt.Timer(ticks_per_wheel=2**31)
        with hwt.Mailbox() as box:
            for bad in (-1, 2**64):
                for call in (lambda: manual(max_pending=bad),
                             lambda: manual(ticks_per_wheel=bad),
                             lambda: hwt.Pool(bad), lambda: hwt.Pool(1, bad),
                             lambda: box.run(bad)):
                    self.assertRaises(ValueError, call)
        with manual(max_pending=1) as one:
            one.schedule(self.run_with(1), 1)
            with self.assertRaises(hwt.Error) as caught:
                one.schedule(self.run_with(1), 1)
            self.assertEqual(caught.exception.errno, errno.ENOBUFS)

    def test_close_gives_back_what_did_not_run(self):
        self.timer.schedule(self.run_with(1), 0.001)
        kept = self.timer.schedule(self.run_with(2), 1)
        often = self.timer.schedule(self.run_with(3), 1, 1)
        self.timer.advance(0.001)
        self.assertEqual(set(self.timer.close()), {kept, often})
        self.assertEqual(self.timer.close(), [])
        self.assertFalse(kept.cancel())
        self.assertEqual(self.runs, [1])

    def test_callables_are_released(self):
        class Callable:
            def __call__(self):
                pass

        def scheduled(delay, period=None):
            callable = Callable()
            seen.append(weakref.ref(callable))
            return self.timer.schedule(callable, delay, period)

        seen = []
        kept = [scheduled(0.001), scheduled(1), scheduled(0.001, 0.001)]
        scheduled(0.001)
        gc.collect()
        self.assertNotIn(None, [each() for each in seen])
        self.timer.advance(0.001)
        kept[1].cancel()
        kept[2].cancel()
        self.assertEqual([each() for each in seen], [None] * 4)

    def test_an_exception_goes_to_the_hook(self):
        hooked = []
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: hooked.append(told.exc_type)
        try:
            self.timer.schedule(lambda: 1 // 0, 0.001)
            self.timer.schedule(self.run_with(1), 0.002)
            self.assertEqual(self.timer.advance(0.002), 2)
        finally:
            sys.unraisablehook = before
        self.assertEqual((hooked, self.runs), ([ZeroDivisionError], [1]))

    def test_a_run_that_began_before_the_cancel_finds_nothing(self):
        timeout = self.timer.schedule(self.run_with(1), 1, 1)
        self.assertTrue(timeout.cancel())
        hwt._run(timeout._handle, timeout._number)
        self.assertEqual(self.runs, [])

    def test_a_clock_of_ones_own(self):
        now = [5]
        with manual(clock=lambda: now[0]) as timer:
            timer.schedule(self.run_with(1), 1)
            now[0] += 10**9
            self.assertEqual(timer.advance(), 1)
            with self.assertRaises(ValueError):
                timer.advance(1)

    def test_stats(self):
        self.timer.schedule(self.run_with(1), 0.001)
        self.timer.schedule(self.run_with(1), 1)
        self.timer.advance(0.001)
        stats = self.timer.stats()
        self.assertEqual(
            (stats["scheduled"], stats["started"], stats["pending"]), (2, 1, 1))
        self.assertEqual(sum(stats["lateness_ns_histogram"]), 1)
        self.assertGreater(stats["memory_bytes"], 0)

    def test_a_closed_timer_is_freed(self):
        timer = manual()
        timer.schedule(self.run_with(1), 1)
        timer.close()
        gone = weakref.ref(timer)
        del timer
        gc.collect()
        self.assertIsNone(gone())

    def test_the_clock_of_a_freed_timer_lives_until_the_pool_is_done(self):
        began, may_end = threading.Event(), threading.Event()
        released, reads = [], []

        class Clock:
            now_ns = 0

            def __call__(self):
                reads.append(len(released))
                return self.now_ns

            def __del__(self):
                released.append(1)

        def run():
            began.set()
            may_end.wait(60)

        with hwt.Pool(1) as pool:
            clock = Clock()
            timer = manual(executor=pool, clock=clock)
            timer.schedule(run, 0.001, 0.001)
            clock.now_ns = 10**6
            timer.advance()
            self.assertTrue(began.wait(60))
            timer.close()
            del timer, clock
            may_end.set()
        self.assertEqual(released, [])
        self.assertNotIn(1, reads)


class Executors(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(len(hwt._scheduled), 0)

    def test_mailbox(self):
        runs = []
        with hwt.Mailbox() as box, manual(executor=box) as timer:
            timer.schedule(lambda: runs.append(1), 0.001)
            timer.schedule(lambda: runs.append(2), 0.001)
            cancelled = timer.schedule(lambda: runs.append(3), 0.001)
            self.assertEqual(select.select([box], [], [], 0)[0], [])
            timer.advance(0.001)
            self.assertEqual(select.select([box], [], [], 0)[0], [box])
            self.assertTrue(cancelled.cancel())
            self.assertEqual(runs, [])
            self.assertEqual(box.run(1), 1)
            with self.assertRaises(hwt.Error):
                box.close()
        self.assertEqual(sorted(runs), [1, 2])
        with self.assertRaises(ValueError):
            box.run()

    def test_touch_takes_back_what_a_mailbox_holds(self):
        # A loop that was busy reads its sockets first, and its mailbox last.
        runs = []
        with hwt.Mailbox() as box, manual() as timer:
            idle = timer.schedule(lambda: runs.append(1), 0.005, executor=box)
            timer.advance(0.005)
            self.assertEqual(select.select([box], [], [], 0)[0], [box])
            self.assertFalse(idle.reschedule(0.005))
            with self.assertRaises(ValueError):
                idle.touch(-1)
            self.assertTrue(idle.touch(0.005))
            self.assertEqual((idle.remaining(), timer.pending), (0.005, 1))
            self.assertEqual((box.run(), runs), (0, []))
            timer.advance(0.004)
            self.assertTrue(idle.touch(0.005))
            timer.advance(0.004)
            self.assertEqual((box.run(), runs), (0, []))
            timer.advance(0.001)
            self.assertEqual((box.run(), runs), (1, [1]))
            self.assertFalse(idle.touch(0.005))
            self.assertEqual(timer.pending, 0)

    def test_touch_of_one_that_is_not_held_is_reschedule(self):
        touched = []
        with hwt.Mailbox() as box, manual(executor=box) as timer:
            once = timer.schedule(lambda: touched.append(once.touch(1)), 0.001)
            often = timer.schedule(
                lambda: touched.append(often.touch(0.003)), 0.002, 0.001)
            self.assertTrue(once.touch(0.001))
            timer.advance(0.001)
            self.assertEqual((box.run(), touched), (1, [False]))
            timer.advance(0.001)
            self.assertFalse(often.touch(1))
            self.assertEqual((box.run(), touched), (1, [False, True]))
            timer.advance(0.002)
            self.assertEqual(box.run(), 0)
            self.assertTrue(often.cancel())
            self.assertFalse(often.touch(1))

    def test_touch_after_close_ends_the_timeout(self):
        with hwt.Mailbox() as box:
            with manual() as timer:
                held = [timer.schedule(print, 0.001, executor=box)]
                timer.advance(0.001)
            with self.assertRaises(hwt.Error) as caught:
                held[0].touch(1)
            self.assertEqual(caught.exception.errno, errno.ESHUTDOWN)
            self.assertEqual(len(hwt._scheduled), 0)
            self.assertFalse(held[0].touch(1))
            self.assertEqual(box.run(), 0)

    def test_what_is_posted_runs_on_the_thread_of_the_loop(self):
        ran = []
        with hwt.Mailbox() as box:
            def post():
                for _ in range(3):
                    box.post(lambda: ran.append((threading.get_ident(),
                                                 len(ran))))

            thread = threading.Thread(target=post)
            thread.start()
            thread.join()
            self.assertEqual(ran, [])
            self.assertEqual(select.select([box], [], [], 0)[0], [box])
            self.assertEqual(box.run(), 0)
            here = threading.get_ident()
            self.assertEqual(ran, [(here, 0), (here, 1), (here, 2)])
            box.post(lambda: ran.append(3))
        self.assertEqual(ran[-1], 3)
        self.assertEqual(len(hwt._posts), 0)
        with self.assertRaises(ValueError):
            box.post(print)

    def test_a_closed_executor_is_refused(self):
        box = hwt.Mailbox()
        with manual() as timer:
            box.close()
            with self.assertRaises(ValueError):
                timer.schedule(print, 1, executor=box)

    def test_a_mailbox_is_not_closed_in_its_own_callable(self):
        errors = []

        def close():
            try:
                box.close()
            except hwt.Error as error:
                errors.append(error.errno)

        with hwt.Mailbox() as box, manual() as timer:
            timer.schedule(close, 0.001, executor=box)
            timer.advance(0.001)
            timer.close()
            self.assertEqual(box.run(), 1)
        self.assertEqual(errors, [errno.EBUSY])

    def test_pool(self):
        names = set()
        done = threading.Semaphore(0)

        def run():
            names.add(threading.get_ident())
            done.release()

        with hwt.Pool(2) as pool, hwt.Timer(tick=0.001, executor=pool) as timer:
            for _ in range(50):
                timer.schedule(run, 0.001)
            for _ in range(50):
                self.assertTrue(done.acquire(timeout=60))
        self.assertNotIn(threading.get_ident(), names)

    def test_a_periodic_one_that_a_pool_runs_ends_with_its_timer(self):
        began, may_end = threading.Event(), threading.Event()

        def run():
            began.set()
            may_end.wait(60)

        with hwt.Pool(1) as pool:
            timer = hwt.Timer(tick=0.001)
            timeout = timer.schedule(run, 0, 0.001, executor=pool)
            self.assertTrue(began.wait(60))
            self.assertEqual(timer.close(), [])
            self.assertEqual(len(hwt._scheduled), 0)
            self.assertFalse(timeout.cancel())
            may_end.set()

    def test_asyncio_runs_callables_on_the_thread_of_the_loop(self):
        async def main():
            loop = asyncio.get_running_loop()
            ran = loop.create_future()
            with hwt.Mailbox() as box, hwt.Timer(0.001) as timer:
                loop.add_reader(box, box.run)
                timer.schedule(
                    lambda: ran.set_result(threading.get_ident()), 0.01,
                    executor=box)
                thread = await asyncio.wait_for(ran, 60)
                loop.remove_reader(box)
                return thread

        self.assertEqual(asyncio.run(main()), threading.get_ident())


class Threads(unittest.TestCase):
    def tearDown(self):
        self.assertEqual(len(hwt._scheduled), 0)

    def test_every_timeout_ends_once(self):
        counts = [0, 0]
        lock, ran = threading.Lock(), threading.Event()

        def count(index):
            with lock:
                counts[index] += 1
            if index == 0:
                ran.set()

        def schedule(timer):
            for turn in range(300):
                timeout = timer.schedule(
                    lambda: count(0), turn % 7 * 0.0001)
                if turn % 2 and timeout.cancel(wait=turn % 4 == 1):
                    count(1)

        with hwt.Timer(tick=0.0002) as timer:
            threads = [threading.Thread(target=schedule, args=(timer,))
                       for _ in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            # One that close() cannot return any more.
            self.assertTrue(ran.wait(60))
            left = len(timer.close())
        self.assertEqual(sum(counts) + left, 900)

    def test_touch_is_in_time_or_too_late(self):
        lock = threading.Lock()
        counts = [0, 0]

        def touch(timer):
            for turn in range(300):
                runs = []
                timeout = timer.schedule(
                    lambda runs=runs: runs.append(1), turn % 7 * 0.0001)
                in_time = timeout.touch(3600)
                if in_time:
                    self.assertTrue(timeout.cancel())
                else:
                    timeout.cancel(wait=True)
                with lock:
                    counts[0] += 1
                    counts[1] += len(runs) == (not in_time)

        with hwt.Pool(1) as pool, hwt.Timer(0.0002, executor=pool) as timer:
            threads = [threading.Thread(target=touch, args=(timer,))
                       for _ in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        self.assertEqual(counts, [900, 900])

    def test_cancel_waits_for_the_callable(self):
        began, may_end = threading.Event(), threading.Event()
        ended = []

        def run():
            began.set()
            may_end.wait(60)
            ended.append(1)

        with hwt.Timer(tick=0.001) as timer:
            timeout = timer.schedule(run, 0)
            self.assertTrue(began.wait(60))
            self.assertFalse(timeout.cancel())
            threading.Timer(0.05, may_end.set).start()
            self.assertFalse(timeout.cancel(wait=True))
            self.assertEqual(ended, [1])

    def test_close_in_a_callable_is_refused(self):
        errors = []
        done = threading.Event()

        def run():
            try:
                timer.close()
            except hwt.Error as error:
                errors.append(error.errno)
            done.set()

        with hwt.Timer(tick=0.001) as timer:
            timer.schedule(run, 0)
            self.assertTrue(done.wait(60))
        self.assertEqual(errors, [errno.EDEADLK])

    def test_shared(self):
        done = threading.Event()
        timer = hwt.Timer.shared()
        timer.schedule(done.set, 0.001)
        self.assertTrue(done.wait(60))
        with self.assertRaises(hwt.Error) as caught:
            timer.close()
        self.assertEqual(caught.exception.errno, errno.EPERM)
        for timeout in list(hwt._scheduled.values()):
            timeout.cancel(wait=True)


def run_program(text):
    """A program in an interpreter of its own; what it prints."""
    return subprocess.run(
        [sys.executable, "-c", text], capture_output=True, text=True,
        timeout=60, check=True, env={**os.environ, "PYTHONPATH": HERE})


class Process(unittest.TestCase):
    def test_a_program_may_end_while_everything_runs(self):
        said = run_program("""
import hwt, time
timer, shared, pool = hwt.Timer(tick=0.0001), hwt.Timer.shared(), hwt.Pool(2)
def again():
    try:
        shared.schedule(again, 0)
    except RuntimeError:
        pass
    time.sleep(0.001)
for _ in range(20):
    timer.schedule(lambda: time.sleep(0.001), 0, 0.0001)
    timer.schedule(lambda: time.sleep(0.001), 0, 0.0001, executor=pool)
shared.schedule(again, 0)
time.sleep(0.05)
print("end")
""")
        self.assertEqual((said.stdout, said.stderr), ("end\n", ""))

    def test_the_end_waits_for_a_callable_on_the_shared_timer(self):
        said = run_program("""
import hwt, threading, time
began = threading.Event()
def run():
    began.set()
    time.sleep(0.3)
    print("ran", flush=True)
hwt.Timer.shared().schedule(run, 0)
began.wait()
""")
        self.assertEqual((said.stdout, said.stderr), ("ran\n", ""))

    def test_a_forked_child_gets_errors(self):
        said = run_program("""
import errno, hwt, os, sys
timer = hwt.Timer(tick=0.001)
timeout = timer.schedule(print, 100)
pool = hwt.Pool(1)
pid = os.fork()
if pid == 0:
    pool.close()
    try:
        timeout.cancel()
    except hwt.Error as error:
        print(error.errno == errno.EOWNERDEAD)
    sys.exit(0)
os.waitpid(pid, 0)
print(timeout.cancel())
""")
        self.assertEqual((said.stdout, said.stderr), ("True\nTrue\n", ""))


class Layout(unittest.TestCase):
    def test_structures_are_those_of_the_header(self):
        structs = {
            "hwt_timeout": hwt._Handle, "hwt_clock": hwt._Clock,
            "hwt_options": hwt._Options, "hwt_timeout_info": hwt._Info,
            "hwt_unprocessed": hwt._Unprocessed}
        expected = {}
        for name, struct in structs.items():
            expected[f"sizeof(struct {name})"] = ctypes.sizeof(struct)
            for field, kind in struct._fields_:
                expected[f"offsetof(struct {name}, {field})"] = getattr(
                    struct, field).offset
                expected[f"sizeof ((struct {name} *)0)->{field}"] = (
                    ctypes.sizeof(kind))
        text = ("#include <hwt.h>\n#include <stdio.h>\nint main(void) {"
                + "".join(f'printf("%d\\n", (int){each});'
                          for each in expected) + "return 0; }")
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "layout")
            subprocess.run(
                [*os.environ.get("CC", "cc").split(), "-I", TOP, "-x", "c",
                 "-o", program, "-"], input=text, text=True, check=True)
            said = subprocess.run(
                [program], capture_output=True, text=True, check=True)
        there = dict(zip(expected, map(int, said.stdout.split())))
        self.assertEqual(there, expected)


if __name__ == "__main__":
    unittest.main()
