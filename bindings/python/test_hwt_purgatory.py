# SPDX-License-Identifier: Apache-2.0
"""Tests of hwt_purgatory.py, with time moved by hand, then with threads."""

import asyncio
import errno
import gc
import math
import select
import sys
import threading
import unittest
import weakref

import hwt
import hwt_purgatory
from hwt_purgatory import Outcome
from test_hwt import (
    check_functions, check_layout, interrupted, manual, run_program)

ONE, TWO = (1, 1), (1, 2)


class Manual(unittest.TestCase):
    def setUp(self):
        self.outcomes = []
        self.holds = False
        self.timer = manual()
        self.purgatory = hwt_purgatory.Purgatory(self.timer, shards=4)

    def tearDown(self):
        self.purgatory.close()
        self.timer.close()
        self.assertEqual(len(hwt_purgatory._watched), 0)

    def watch(self, keys=(ONE,), delay=1, **more):
        return self.purgatory.watch(
            keys, delay, self.outcomes.append, **more)

    def test_completes_when_the_condition_holds(self):
        operation = self.watch([ONE, TWO], predicate=lambda: self.holds)
        self.assertEqual(self.purgatory.check(ONE), 0)
        self.assertEqual(self.outcomes, [])
        self.holds = True
        self.assertEqual(self.purgatory.check((9, 9)), 0)
        self.assertEqual(self.purgatory.check(TWO), 1)
        self.assertEqual(self.outcomes, [Outcome.COMPLETED])
        self.assertFalse(operation.complete())
        self.watch(predicate=lambda: True)
        self.assertEqual(self.outcomes, [Outcome.COMPLETED] * 2)
        stats = self.purgatory.stats()
        self.assertEqual(
            (stats["pending"], stats["links"], stats["completed"]), (0, 0, 2))

    def test_expires(self):
        self.watch(delay=0.005)
        self.watch(delay=math.inf)
        self.timer.advance(0.004)
        self.assertEqual(self.outcomes, [])
        self.timer.advance(0.001)
        self.timer.advance(10**9)
        self.assertEqual(self.outcomes, [Outcome.EXPIRED])
        self.assertEqual(self.purgatory.cancel(ONE), 1)

    def test_deadlines_move(self):
        first = self.watch(delay=0.005)
        second = self.watch(delay=math.inf)
        self.assertTrue(first.reschedule(math.inf))
        self.assertTrue(second.reschedule(0.007))
        self.timer.advance(0.006)
        self.assertEqual(self.outcomes, [])
        self.timer.advance(0.001)
        self.assertEqual(self.outcomes, [Outcome.EXPIRED])
        self.assertFalse(second.reschedule(1))
        with self.assertRaises(ValueError):
            first.reschedule(-1)
        self.assertTrue(first.reschedule(0))
        self.timer.advance(0.001)
        self.assertEqual(self.outcomes, [Outcome.EXPIRED] * 2)

    def test_handles_end_it(self):
        self.assertTrue(self.watch().cancel())
        self.assertTrue(self.watch().complete())
        self.watch([ONE, TWO])
        self.assertEqual(self.purgatory.cancel(TWO), 1)
        self.assertEqual(self.outcomes, [
            Outcome.CANCELLED, Outcome.COMPLETED, Outcome.CANCELLED])

    def test_lists_what_waits(self):
        first = self.watch([ONE, TWO])
        second = self.watch(at_least=5)
        third = self.watch([TWO])
        self.assertEqual(self.purgatory.count(ONE), 2)
        self.assertEqual(self.purgatory.list(ONE), [first, second])
        self.assertEqual(self.purgatory.list(TWO), [first, third])
        self.assertTrue(first.cancel())
        self.assertEqual(self.purgatory.list(ONE), [second])
        self.assertEqual(self.purgatory.list((9, 9)), [])
        self.assertEqual(self.purgatory.count((9, 9)), 0)

    def test_waits_for_a_value(self):
        self.watch(at_least=2**63)
        self.assertEqual(self.purgatory.raise_to(ONE, 2**63 - 1), 0)
        self.assertEqual(self.purgatory.raise_to(ONE, 2**64 - 1), 1)
        self.assertEqual(self.outcomes, [Outcome.COMPLETED])

    def test_waits_for_a_quorum(self):
        keys = [(7, replica) for replica in range(5)]
        self.watch(keys, at_least=10, quorum=3)
        self.assertEqual(self.purgatory.raise_to(keys[4], 10), 0)
        self.assertEqual(self.purgatory.raise_to(keys[0], 12), 0)
        self.assertEqual(self.outcomes, [])
        self.assertEqual(self.purgatory.raise_to(keys[2], 11), 1)
        self.assertEqual(self.outcomes, [Outcome.COMPLETED])
        with self.assertRaises(hwt.Error):
            self.watch(keys, at_least=10, quorum=6)

    def test_errors(self):
        for bad in ((-1, 0), (0, 2**64), (1,), (1, 2, 3)):
            with self.assertRaises(ValueError):
                self.watch([bad])
            with self.assertRaises(ValueError):
                self.purgatory.check(bad)
        for bad in ({"delay": -1}, {"at_least": -1}):
            with self.assertRaises(ValueError):
                self.watch(**bad)
        with self.assertRaises(hwt.Error) as caught:
            self.watch([])
        self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaises(hwt.Error):
            hwt_purgatory.Purgatory(self.timer, shards=3)
        with self.assertRaises(hwt.Error):
            hwt_purgatory.Purgatory(self.timer, name="x" * 16)
        hwt_purgatory.Purgatory(self.timer, name="x" * 15)
        small = hwt_purgatory.Purgatory(self.timer, max_pending=1)
        with small:
            small.watch([ONE], 1, self.outcomes.append)
            with self.assertRaises(hwt.Error) as caught:
                small.watch([ONE], 1, self.outcomes.append)
            self.assertEqual(caught.exception.errno, errno.ENOBUFS)
        self.assertEqual(self.outcomes, [Outcome.SHUT_DOWN])
        with self.assertRaises(hwt.Error) as caught:
            small.watch([ONE], 1, self.outcomes.append)
        self.assertEqual(caught.exception.errno, errno.ESHUTDOWN)
        self.assertEqual(len(hwt_purgatory._watched), 0)

    def test_callables_are_released(self):
        class Callable:
            def __call__(self, *_outcome):
                pass

        seen = []
        for delay in (0.001, 1, 2):
            done, predicate = Callable(), Callable()
            seen += [weakref.ref(done), weakref.ref(predicate)]
            kept = self.purgatory.watch([ONE], delay, done, predicate)
            del done, predicate
        gc.collect()
        self.assertNotIn(None, [each() for each in seen])
        self.timer.advance(0.001)
        self.assertEqual([each() for each in seen[:2]], [None] * 2)
        self.purgatory.cancel(ONE)
        del kept
        self.assertEqual([each() for each in seen], [None] * 6)

    def test_exceptions_go_to_the_hook(self):
        hooked = []
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: hooked.append(told.exc_type)
        try:
            self.purgatory.watch([ONE], 1, lambda _: 1 // 0, lambda: [][0])
            self.assertEqual(self.purgatory.check(ONE), 0)
            self.assertEqual(self.purgatory.cancel(ONE), 1)
        finally:
            sys.unraisablehook = before
        self.assertEqual(hooked, [IndexError, IndexError, ZeroDivisionError])

    def test_is_freed_when_nothing_refers_to_it(self):
        gc.collect()
        destroyer, destroyed = hwt_purgatory._destroy, []
        real = destroyer._destroy
        destroyer._destroy = lambda each: destroyed.append(
            real(each)) or destroyed[-1]
        try:
            own = hwt_purgatory.Purgatory(self.timer)
            operation = own.watch([ONE], 1, self.outcomes.append)
            del own
            gc.collect()
            self.assertEqual((destroyed, self.outcomes), ([], []))
            self.assertTrue(operation.cancel())
            del operation
            self.assertEqual(destroyed, [0])
            # In its own callable, where it cannot be destroyed yet.
            own = [hwt_purgatory.Purgatory(self.timer)]
            own[0].watch([ONE], 0.001, lambda _: own.clear())
            self.timer.advance(0.001)
            self.assertEqual(destroyed, [0, -errno.EDEADLK])
            hwt_purgatory.Purgatory(self.timer)
            self.assertEqual(destroyed, [0, -errno.EDEADLK, 0, 0])
        finally:
            destroyer._destroy = real

    def test_close_in_a_callable_is_refused(self):
        def done(_outcome):
            try:
                self.purgatory.close()
            except hwt.Error as error:
                self.outcomes.append(error.errno)

        self.purgatory.watch([ONE], 1, done)
        self.purgatory.cancel(ONE)
        self.assertEqual(self.outcomes, [errno.EDEADLK])

    def test_mailbox(self):
        box = hwt_purgatory.Mailbox()
        with hwt_purgatory.Purgatory(self.timer, executor=box) as boxed:
            boxed.watch([ONE], 1, self.outcomes.append)
            self.watch(executor=box)
            self.assertEqual(select.select([box], [], [], 0)[0], [])
            self.assertEqual(boxed.cancel(ONE), 1)
            self.assertEqual(self.purgatory.cancel(ONE), 1)
            self.assertEqual(select.select([box], [], [], 0)[0], [box])
            self.assertEqual(self.outcomes, [])
            self.assertEqual(box.run(1), 1)
        del boxed
        gc.collect()
        self.assertEqual((box.run(), box.run()), (1, 0))
        self.assertEqual(self.outcomes, [Outcome.CANCELLED] * 2)
        # What waits in it keeps it.
        gone = weakref.ref(box)
        self.watch(executor=box)
        del box
        gc.collect()
        self.purgatory.cancel(ONE)
        self.assertEqual(gone().run(), 1)
        gc.collect()
        self.assertIsNone(gone())


class Threads(unittest.TestCase):
    def test_each_ends_once_whatever_races(self):
        ended, lock = [0, 0], threading.Lock()

        def done(_outcome):
            with lock:
                ended[0] += 1

        def work(self_index):
            for turn in range(300):
                acks = []
                key = (1, turn % 3)
                operation = purgatory.watch(
                    [key, (2, self_index)], turn % 5 * 0.0003, done,
                    lambda acks=acks: bool(acks))
                if turn % 2:
                    acks.append(1)
                purgatory.check(key)
                if turn % 7 == 0:
                    operation.cancel()
                with lock:
                    ended[1] += 1

        with hwt.Timer(tick=0.0002) as timer:
            purgatory = hwt_purgatory.Purgatory(timer)
            threads = [threading.Thread(target=work, args=(index,))
                       for index in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            purgatory.close()
        self.assertEqual(ended, [900, 900])
        self.assertEqual(len(hwt_purgatory._watched), 0)

    def test_what_is_pending_is_told_wherever_a_handler_raises(self):
        outcomes = []
        with hwt.Timer() as timer:
            purgatory = hwt_purgatory.Purgatory(timer)
            for _ in interrupted(
                    lambda: purgatory.watch([ONE], 60, outcomes.append)):
                pending = purgatory.stats()["pending"]
                self.assertEqual(len(hwt_purgatory._watched), pending)
                self.assertEqual(purgatory.cancel(ONE), pending)
                self.assertEqual(outcomes, [Outcome.CANCELLED] * pending)
                outcomes.clear()
            purgatory.close()

    def test_asyncio_runs_done_on_the_thread_of_the_loop(self):
        async def main():
            loop = asyncio.get_running_loop()
            ran = loop.create_future()
            box = hwt_purgatory.Mailbox()
            with hwt.Timer(0.001) as timer:
                purgatory = hwt_purgatory.Purgatory(timer, executor=box)
                loop.add_reader(box, box.run)
                purgatory.watch(
                    [ONE], 0.01, lambda outcome: ran.set_result(
                        (outcome, threading.get_ident())))
                result = await asyncio.wait_for(ran, 60)
                loop.remove_reader(box)
                return result

        self.assertEqual(
            asyncio.run(main()), (Outcome.EXPIRED, threading.get_ident()))


class Process(unittest.TestCase):
    def test_a_program_may_end_while_everything_runs(self):
        said = run_program("""
import hwt, hwt_purgatory, threading, time
timer = hwt.Timer(tick=0.0001)
purgatory = hwt_purgatory.Purgatory(timer)
outcomes = []
def again(outcome):
    try:
        purgatory.watch([(1, 1)], 0.0001, again, lambda: False)
    except RuntimeError:
        pass
    except hwt.Error:
        pass
for _ in range(20):
    again(None)
purgatory.watch([(1, 2)], 1000, lambda outcome: print(outcome.name))
time.sleep(0.05)
print("end")
""")
        self.assertEqual((said.stdout, said.stderr), ("end\nSHUT_DOWN\n", ""))

    def test_a_forked_child_gets_errors(self):
        said = run_program("""
import errno, hwt, hwt_purgatory, os, sys
timer = hwt.Timer()
purgatory = hwt_purgatory.Purgatory(timer)
operation = purgatory.watch([(1, 1)], 100, lambda outcome: print(outcome.name))
pid = os.fork()
if pid == 0:
    try:
        operation.cancel()
    except hwt.Error as error:
        print(error.errno == errno.EOWNERDEAD)
    sys.exit(0)
os.waitpid(pid, 0)
print(operation.cancel())
""")
        self.assertEqual(
            (said.stdout, said.stderr), ("True\nCANCELLED\nTrue\n", ""))


class Layout(unittest.TestCase):
    def test_sizes_and_offsets(self):
        check_layout(self, "modules/purgatory/hwt_purgatory.h", {
            "hwt_operation": hwt_purgatory._Handle,
            "hwt_key": hwt_purgatory._Key,
            "hwt_purgatory_options": hwt_purgatory._Options,
            "hwt_operation_spec": hwt_purgatory._Spec,
            "hwt_purgatory_stats": hwt_purgatory._Stats,
        })

    def test_functions(self):
        # For an executor that is written in C; with a FILE.
        check_functions(self, "modules/purgatory/hwt_purgatory.h",
                        hwt_purgatory._lib,
                        "hwt_operation_run hwt_purgatory_stats_write")


if __name__ == "__main__":
    unittest.main()
