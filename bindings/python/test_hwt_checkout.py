# SPDX-License-Identifier: Apache-2.0
"""Tests of hwt_checkout.py, with time moved by hand, then with threads."""

import asyncio
import concurrent.futures
import errno
import gc
import os
import select
import signal
import sys
import threading
import unittest
import warnings
import weakref

import hwt
import hwt_checkout
from hwt_checkout import Grant
from test_hwt import (
    Interrupt, check_functions, check_layout, interrupted, manual, run_program)


class Manual(unittest.TestCase):
    def setUp(self):
        self.told = []
        self.timer = manual()
        self.pool = hwt_checkout.Checkout(self.timer)
        self.a, self.b = self.pool.object("a", 1), self.pool.object("b", 2)

    def tearDown(self):
        self.pool.close()
        self.timer.close()
        self.assertEqual(len(hwt_checkout._waiting), 0)

    def note(self, held, grant):
        self.assertEqual(held is not None, grant == Grant.GRANTED)
        self.told.append(grant)
        if held:
            held.release()

    def test_a_hold_has_all_until_it_is_released(self):
        with self.pool.acquire(self.b, self.a, timeout=0) as held:
            self.assertIsNone(self.pool.try_acquire(self.a))
            self.assertEqual(self.pool.stats()["out"], 1)
            with self.assertRaises(TimeoutError):
                self.acquire_until_it_expires(self.b)
        held.release()
        self.assertEqual(self.pool.stats()["out"], 0)
        self.pool.try_acquire(self.a).release()

    def test_who_waits_for_what_and_how_long_waits_took(self):
        pool = hwt_checkout.Checkout(
            self.timer, name="accounts", list_grants=True)
        a = pool.object("a", 7)
        held = pool.try_acquire(a)
        pool.acquire_then(self.note, a)
        self.timer.advance(0.004)
        text = pool.dump()
        self.assertIn('"accounts": open, 1 out, 1 waiting, longest 4', text)
        self.assertIn(" order 7\nwaiting:\n", text)
        self.assertIn(" order 7: request 0x", text)
        held.release()
        stats = pool.stats()
        self.assertEqual(stats["wait_ns_sum"], 4000000)
        self.assertEqual(stats["wait_ns_histogram"][21], 1)
        page = pool.prometheus()
        self.assertIn("# TYPE hwt_checkout_wait_seconds histogram\n", page)
        self.assertIn('hwt_checkout_released_total{checkout="accounts",', page)
        self.assertNotIn("#", pool.prometheus(heads=False))
        pool.close()
        with self.assertRaises(hwt.Error):
            hwt_checkout.Checkout(self.timer, name="x" * 16)

    def acquire_until_it_expires(self, object):
        def turn():
            while not self.timer.pending:
                pass
            self.timer.advance(0.001)

        turns = threading.Thread(target=turn)
        turns.start()
        try:
            self.pool.acquire(object, timeout=0.001)
        finally:
            turns.join()

    def test_a_callable_gets_the_hold_when_all_are_free(self):
        self.pool.acquire_then(self.note, self.a)
        self.assertEqual(self.told, [Grant.GRANTED])
        held = self.pool.try_acquire(self.a)
        self.pool.acquire_then(self.note, self.b, self.a)
        self.assertEqual(self.pool.stats()["waiting"], 1)
        held.release()
        self.assertEqual(self.told, [Grant.GRANTED] * 2)
        self.assertEqual(self.pool.stats()["out"], 0)

    def test_waits_end(self):
        held = self.pool.try_acquire(self.a)
        self.pool.acquire_then(self.note, self.a, timeout=0.005)
        self.timer.advance(0.004)
        self.assertEqual(self.told, [])
        self.timer.advance(0.001)
        waiter = self.pool.acquire_then(self.note, self.a)
        self.assertTrue(waiter.cancel())
        self.assertFalse(waiter.cancel())
        self.pool.acquire_then(self.note, self.a)
        self.pool.close()
        held.release()
        self.assertEqual(
            self.told, [Grant.EXPIRED, Grant.CANCELLED, Grant.SHUT_DOWN])
        with self.assertRaises(hwt.Error) as caught:
            self.pool.acquire_then(self.note, self.a)
        self.assertEqual(caught.exception.errno, errno.ESHUTDOWN)

    def test_retired_objects_leave_their_hold(self):
        with self.pool.acquire(self.a, self.b) as held:
            self.pool.acquire_then(self.note, self.b)
            held.retire(self.b)
            self.assertEqual(self.told, [Grant.RETIRED])
            with self.assertRaises(ValueError):
                held.retire(self.pool.object())
        with self.assertRaises(hwt.Error) as caught:
            self.pool.acquire(self.b)
        self.assertEqual(caught.exception.errno, errno.EIDRM)
        with self.assertRaises(ValueError):
            held.retire(self.a)
        self.pool.acquire(self.a).release()

    def test_a_pause_is_told_and_ends_with_its_hold(self):
        holds = []
        held = self.pool.try_acquire(self.a)
        self.pool.pause_then(lambda hold, grant: holds.append(hold))
        self.assertIsNone(self.pool.try_acquire(self.b))
        with self.assertRaises(hwt.Error) as caught:
            self.pool.pause_then(self.note)
        self.assertEqual(caught.exception.errno, errno.EALREADY)
        held.release()
        self.assertEqual(self.pool.stats()["pauses"], 1)
        holds.pop().release()
        held = self.pool.try_acquire(self.a)
        self.pool.pause_then(self.note, timeout=0.005)
        self.timer.advance(0.005)
        self.assertEqual(self.told, [Grant.EXPIRED])
        self.pool.pause_then(
            lambda hold, grant: holds.append(hold), self.a, self.b)
        self.assertEqual(holds, [])
        held.release()
        self.assertIsNone(self.pool.try_acquire(self.b))
        holds.pop().release()
        self.pool.try_acquire(self.b, self.a).release()

    def test_many_read_and_one_writes(self):
        read = hwt_checkout.Read(self.a)
        with self.pool.acquire(read, self.b) as first:
            with self.pool.try_acquire(read):
                self.pool.acquire_then(self.note, self.a)
                self.assertIsNone(self.pool.try_acquire(read))
            self.assertEqual(self.told, [])
            with self.assertRaises(ValueError):
                first.retire(self.a)
        self.assertEqual(self.told, [Grant.GRANTED])
        with self.assertRaises(hwt.Error) as caught:
            self.pool.acquire(read, self.a)
        self.assertEqual(caught.exception.errno, errno.ENOTSUP)

    def test_a_hold_tells_which_member_it_has_got(self):
        group = self.pool.group(3)
        one, two = group.add(1), group.add(2)
        with self.pool.acquire(group) as first:
            self.assertIs(first.member(group), two)
            with self.pool.try_acquire(self.a, group) as second:
                self.assertIs(second.member(group), one)
                self.assertIsNone(self.pool.try_acquire(group))
                with self.assertRaises(TimeoutError):
                    self.acquire_until_it_expires(group)
            with self.assertRaises(ValueError):
                first.member(self.pool.group())
        with self.assertRaises(ValueError):
            first.member(group)

    def test_a_retired_member_ends_no_wait(self):
        group = self.pool.group()
        group.add("broken")
        with self.pool.acquire(group, self.a) as held:
            self.pool.acquire_then(self.note, group)
            gone = held.member(group)
            held.retire(gone)
            self.assertIsNone(held.member(group))
            with self.assertRaises(ValueError):
                held.retire(gone)
            self.assertEqual(self.told, [])
            group.add("new")
            self.assertEqual(self.told, [Grant.GRANTED])
        with self.pool.acquire(group) as held:
            self.assertEqual(held.member(group).value, "new")
            with self.assertRaises(ValueError):
                held.retire(gone)
        with self.assertRaises(hwt.Error) as caught:
            group.retire()
        self.assertEqual(caught.exception.errno, errno.EBUSY)

    def test_a_retired_group_ends_its_waits(self):
        group = self.pool.group()
        self.pool.acquire_then(self.note, self.a, group)
        group.retire()
        self.assertEqual(self.told, [Grant.RETIRED])
        for late in (lambda: self.pool.try_acquire(group), group.add):
            with self.assertRaises(hwt.Error) as caught:
                late()
            self.assertEqual(caught.exception.errno, errno.EIDRM)
        self.assertEqual(len(group._members), 0)

    def test_the_memory_of_a_member_lives_as_long_as_it_is_one(self):
        group = self.pool.group()
        gone = weakref.ref(group.add()._memory)
        gc.collect()
        self.assertIsNotNone(gone())
        with self.pool.acquire(group) as held:
            held.retire(held.member(group))
        del held
        gc.collect()
        self.assertIsNone(gone())

    def test_hold_after_says_who_is_served_in_order(self):
        for after in (1, hwt_checkout.NEVER):
            pool = hwt_checkout.Checkout(self.timer, hold_after=after)
            a, b = pool.object(order=1), pool.object(order=2)
            with pool.acquire(b):
                waiter = pool.acquire_then(self.note, a, b)
                held = pool.try_acquire(a)
                self.assertEqual(held is None, after == 1)
                if held:
                    held.release()
                waiter.cancel()

    def test_mailbox(self):
        box = hwt_checkout.Mailbox()
        pool = hwt_checkout.Checkout(self.timer, executor=box)
        group = pool.group()
        group.add()
        held = pool.acquire(group)
        pool.acquire_then(self.note, group)
        waiter = pool.acquire_then(self.note, group)
        self.assertEqual(select.select([box], [], [], 0)[0], [])
        held.release()
        self.assertTrue(waiter.cancel())
        self.assertEqual(select.select([box], [], [], 0)[0], [box])
        self.assertEqual(self.told, [])
        self.assertEqual((box.run(1), self.told), (1, [Grant.GRANTED]))
        self.assertEqual((box.run(), box.run()), (1, 0))
        self.assertEqual(self.told, [Grant.GRANTED, Grant.CANCELLED])
        # What waits in it keeps it.
        gone = weakref.ref(box)
        held = pool.acquire(group)
        pool.acquire_then(self.note, group).cancel()
        held.release()
        del box, pool, group, held, waiter
        gc.collect()
        self.assertEqual(gone().run(), 1)
        gc.collect()
        self.assertIsNone(gone())

    def test_a_pause_lasts_until_its_end(self):
        held = self.pool.acquire(self.a)
        with self.assertRaises(TimeoutError):
            self.pool.pause(timeout=0)
        held.release()
        with self.pool.pause(timeout=0) as paused:
            self.assertIsNone(self.pool.try_acquire(self.b))
            with self.assertRaises(hwt.Error) as caught:
                self.pool.pause(timeout=0)
            self.assertEqual(caught.exception.errno, errno.EALREADY)
            self.pool.acquire_then(self.note, self.a)
            self.assertEqual(self.told, [])
        paused.resume()
        self.assertEqual(self.told, [Grant.GRANTED])

    def test_errors(self):
        for bad in ((), (self.a, self.a)):
            for acquire in (self.pool.acquire, self.pool.try_acquire):
                with self.assertRaises(hwt.Error):
                    acquire(*bad)
            with self.assertRaises(hwt.Error):
                self.pool.acquire_then(self.note, *bad)
        with self.assertRaises(ValueError):
            self.pool.acquire_then(self.note, self.a, timeout=-1)
        for make in (self.pool.object, self.pool.group):
            with self.assertRaises(ValueError):
                make(order=-1)
        other = hwt_checkout.Checkout(self.timer)
        with self.assertRaises(hwt.Error):
            other.try_acquire(self.a)
        with self.assertRaises(hwt.Error):
            hwt_checkout.Checkout(self.timer, shards=3)
        self.assertEqual(self.pool.stats()["out"], 0)

    def test_exceptions_go_to_the_hook(self):
        hooked = []
        before = sys.unraisablehook
        sys.unraisablehook = lambda told: hooked.append(told.exc_type)

        def fail(held, _grant):
            held.release()
            raise KeyError

        def wait(held, _grant):
            held.release()
            self.pool.acquire(self.b)

        try:
            self.pool.acquire_then(fail, self.a)
            held = self.pool.acquire(self.a)
            self.pool.acquire_then(fail, self.a)
            self.pool.acquire_then(wait, self.a)
            held.release()
        finally:
            sys.unraisablehook = before
        self.assertEqual(hooked, [KeyError, KeyError, hwt.Error])

    def test_a_forgotten_hold_is_released_with_a_warning(self):
        with self.assertWarns(ResourceWarning):
            self.pool.try_acquire(self.a)
            gc.collect()
        self.assertEqual(self.pool.stats()["out"], 0)

    def test_a_forgotten_pause_ends_with_a_warning(self):
        with self.assertWarns(ResourceWarning):
            self.pool.pause()
            gc.collect()
        self.pool.try_acquire(self.a).release()

    def test_is_freed_when_nothing_refers_to_it(self):
        class Callable:
            def __call__(self, held, _grant):
                held.release()

        gc.collect()
        destroyer, destroyed = hwt_checkout._destroy, []
        real = destroyer._destroy
        destroyer._destroy = lambda each: destroyed.append(
            real(each)) or destroyed[-1]
        try:
            pool = hwt_checkout.Checkout(self.timer)
            a = pool.object()
            callable = Callable()
            gone = weakref.ref(callable)
            held = pool.acquire(a)
            pool.acquire_then(callable, a)
            del pool, a, callable
            gc.collect()
            self.assertEqual(destroyed, [])
            self.assertIsNotNone(gone())
            held.release()
            del held
            gc.collect()
            self.assertEqual((destroyed, gone()), ([0], None))
        finally:
            destroyer._destroy = real


class Stores(unittest.TestCase):
    def setUp(self):
        self.timer = manual()
        self.pool = hwt_checkout.Checkout(self.timer)
        self.loads, self.unloaded, self.told = [], [], []

    def tearDown(self):
        gc.collect()
        self.pool.close()
        self.timer.close()
        self.assertEqual(len(hwt_checkout._waiting), 0)

    def load(self, key):
        self.loads.append(key)
        return [key]

    def unload(self, key, value):
        self.assertEqual([key], value)
        self.unloaded.append(key)

    def note(self, held, error):
        self.assertEqual(held is None, error is not None)
        self.told.append(error and error.errno)
        if held:
            held.release()

    def test_it_loads_what_is_named_and_unloads_it(self):
        store = self.pool.store(self.load, self.unload)
        with store.acquire("a", b"\0b") as held:
            self.assertEqual((held[0], held[1]), ([b"a"], [b"\0b"]))
            self.assertEqual(len(held), 2)
            with self.assertRaises(IndexError):
                held[2]
        with self.assertRaises(IndexError):
            held[0]
        read = hwt_checkout.Read("a")
        with store.acquire(read) as one, store.acquire(read) as other:
            self.assertIs(one[0], other[0])
        store.trim()
        self.assertEqual(sorted(self.unloaded), [b"\0b", b"a"])
        self.assertEqual(store._jobs.values, {})
        store.acquire("ä" * 127).release()
        stats = store.stats()
        self.assertEqual((stats["loaded"], stats["loads"]), (1, 3))
        self.assertIn('hwt_store_loads_total{store="store",serial="',
                      store.prometheus(heads=False))
        with store.acquire("ä" * 127):
            self.assertIn(r'\xa4" wanted by 1: request ', store.dump())
        for wrong in ((), ("",), ("x" * 256,), ("a", b"a")):
            with self.assertRaises(hwt.Error) as caught:
                store.acquire(*wrong)
            self.assertEqual(caught.exception.errno, errno.EINVAL)
        with self.assertRaises(ValueError):
            self.pool.store(self.load, limit=-1)
        with self.assertRaises(hwt.Error):
            self.pool.store(self.load, shards=3)
        del store
        gc.collect()
        self.assertEqual(self.unloaded[2:], ["ä".encode() * 127])

    def test_a_hold_keeps_the_store(self):
        held = self.pool.store(self.load, self.unload).acquire("a")
        gc.collect()
        self.assertEqual((held[0], self.unloaded), ([b"a"], []))
        held.release()
        gc.collect()
        self.assertEqual(self.unloaded, [b"a"])

    def test_a_callable_gets_the_hold_or_the_error(self):
        store = self.pool.store(self.load)
        store.acquire_then(self.note, "a")
        held = store.acquire("a")
        store.acquire_then(self.note, "a", timeout=0.005)
        self.timer.advance(0.005)
        waiter = store.acquire_then(self.note, "a")
        self.assertTrue(waiter.cancel())
        self.assertFalse(waiter.cancel())
        store.acquire_then(self.note, "b", "a")
        held.release()
        self.assertEqual(
            self.told, [None, errno.ETIMEDOUT, errno.ECANCELED, None])

    def test_failures_go_to_who_waits(self):
        def load(key):
            self.load(key)
            raise failure

        reported, hook = [], sys.unraisablehook
        sys.unraisablehook = lambda one: reported.append(one.exc_value)
        try:
            store = self.pool.store(load, backoff=0.005)
            for failure, number in (
                    (OSError(errno.ENOSPC, "full"), errno.ENOSPC),
                    (ValueError("wrong"), errno.EIO)):
                with self.assertRaises(hwt.Error) as caught:
                    store.acquire("a")
                self.assertEqual(caught.exception.errno, number)
                with self.assertRaises(hwt.Error):
                    store.acquire_then(self.note, "a")
                self.timer.advance(0.005)
        finally:
            sys.unraisablehook = hook
        self.assertEqual((self.loads, self.told), ([b"a", b"a"], []))
        self.assertEqual(reported, [failure])

    def test_it_keeps_to_its_options(self):
        refuses = [True]

        def unload(key, value):
            self.unload(key, value)
            return not refuses[0]

        store = self.pool.store(
            lambda key: hwt_checkout.Weighed([key], 3), unload, limit=5,
            idle=0.005)
        store.acquire("a").release()
        store.acquire("b").release()
        self.assertEqual(store.stats()["weight"], 6)
        self.assertNotEqual(self.unloaded, [])
        refuses[0] = False
        with store.acquire("c") as held:
            held.pin(0)
        self.assertEqual(store.stats()["weight"], 3)
        self.timer.advance(0.01)
        self.assertEqual(store.stats()["weight"], 3)
        with store.acquire("c") as held:
            held.pin(0, False)
        self.timer.advance(0.01)
        self.assertEqual(store.stats()["weight"], 0)

    def test_futures_end_later(self):
        futures = []

        def later(*_arguments):
            futures.append(concurrent.futures.Future())
            return futures[-1]

        store = self.pool.store(later, later)
        store.acquire_then(self.note, "a")
        store.acquire_then(self.note, "a")
        futures.pop().set_exception(OSError(errno.EPERM, "no"))
        store.acquire_then(self.note, "a")
        futures.pop().cancel()
        store.acquire_then(self.note, "a")
        self.assertEqual(self.told, [errno.EPERM] * 2 + [errno.ECANCELED])
        futures.pop().set_result(7)
        self.assertEqual(self.told[3:], [None])
        store.trim()
        futures.pop().set_result(False)
        self.assertEqual(store.stats()["refusals"], 1)
        with store.acquire("a") as held:
            self.assertEqual(held[0], 7)
        store.trim()
        futures.pop().set_result(None)
        self.assertEqual((store.stats()["loaded"], futures), (0, []))

    def test_one_load_runs_for_all_threads(self):
        def load(key):
            begun.wait(60)
            return self.load(key)

        def work():
            with store.acquire("a", timeout=60) as held:
                held[0].append(len(held[0]))

        begun = threading.Event()
        store = self.pool.store(load)
        threads = [threading.Thread(target=work) for _ in range(4)]
        for each in threads:
            each.start()
        begun.set()
        for each in threads:
            each.join()
        with store.acquire("a") as held:
            self.assertEqual(held[0], [b"a", 1, 2, 3, 4])
        self.assertEqual(self.loads, [b"a"])


class Threads(unittest.TestCase):
    def test_one_holder_whatever_races(self):
        ended, lock = [0, 0], threading.Lock()

        def use(held, x, y):
            if held is None:
                return
            with held:
                for each in (x, y):
                    self.assertEqual(each.value.pop(), 1)
                for each in (x, y):
                    each.value.append(1)

        def work(index):
            for turn in range(200):
                x = objects[(turn + index) % 4]
                y = objects[(turn + index + 1 + turn % 3) % 4]

                def told(held, _grant, x=x, y=y):
                    use(held, x, y)
                    with lock:
                        ended[0] += 1

                waiter = pool.acquire_then(
                    told, x, y, timeout=turn % 5 * 0.0003)
                if turn % 7 == 0:
                    waiter.cancel()
                try:
                    use(pool.acquire(y, x, timeout=0.0002), x, y)
                except TimeoutError:
                    pass
                if index == 0 and turn % 20 == 0:
                    try:
                        pool.pause(timeout=0.001).resume()
                    except TimeoutError:
                        pass
                with lock:
                    ended[1] += 1

        with hwt.Timer(tick=0.0002) as timer:
            pool = hwt_checkout.Checkout(timer)
            objects = [pool.object([1]) for _ in range(4)]
            threads = [threading.Thread(target=work, args=(index,))
                       for index in range(3)]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
            pool.close()
        self.assertEqual(ended, [600, 600])
        self.assertEqual(len(hwt_checkout._waiting), 0)

    def test_asyncio_is_told_on_the_thread_of_the_loop(self):
        async def main():
            loop = asyncio.get_running_loop()
            told = loop.create_future()
            box = hwt_checkout.Mailbox()
            with hwt.Timer(0.001) as timer:
                pool = hwt_checkout.Checkout(timer, executor=box)
                loop.add_reader(box, box.run)
                pool.acquire_then(
                    lambda held, grant: told.set_result(
                        (grant, threading.get_ident())),
                    pool.group(), timeout=0.01)
                result = await asyncio.wait_for(told, 60)
                loop.remove_reader(box)
                return result

        self.assertEqual(
            asyncio.run(main()), (Grant.EXPIRED, threading.get_ident()))

    def test_a_wait_lets_others_run(self):
        with hwt.Timer(tick=0.001) as timer:
            pool = hwt_checkout.Checkout(timer)
            a = pool.object()
            held = pool.acquire(a)
            release = threading.Timer(0.02, held.release)
            release.start()
            pool.acquire(a, timeout=60).release()
            release.join()


class Signals(unittest.TestCase):
    """A handler raises, but not in a callable that the library calls: a manual
    timer's clock would be one."""

    def setUp(self):
        self.told = []
        self.timer = hwt.Timer(tick=0.001)
        self.pool = hwt_checkout.Checkout(self.timer)
        self.a, self.b = self.pool.object(), self.pool.object()

    def tearDown(self):
        self.pool.close()
        self.timer.close()
        self.assertEqual(len(hwt_checkout._waiting), 0)

    def test_what_a_wait_gets_goes_back_if_a_handler_raises(self):
        def fail(*_signal):
            raise Interrupt

        def meanwhile():
            # What has begun to wait, or to pause, refuses others.
            while self.pool.stats()["waiting"] == 0 and self.is_free(self.b):
                pass
            os.kill(os.getpid(), signal.SIGALRM)
            held.release()

        store = self.pool.store(len)
        before = signal.signal(signal.SIGALRM, fail)
        try:
            for take, wait in (
                    (lambda: self.pool.acquire(self.a),
                     lambda: self.pool.acquire(self.a)),
                    (lambda: store.acquire("a"), lambda: store.acquire("a")),
                    (lambda: self.pool.acquire(self.a), self.pool.pause)):
                held = take()
                thread = threading.Thread(target=meanwhile)
                thread.start()
                with self.assertRaises(Interrupt):
                    wait()
                thread.join()
                self.assertEqual(self.pool.stats()["out"], 0)
                self.assertTrue(self.is_free(self.a))
        finally:
            signal.signal(signal.SIGALRM, before)

    def is_free(self, *objects):
        held = self.pool.try_acquire(*objects)
        if held is not None:
            held.release()
        return held is not None

    def test_nothing_is_lost_wherever_a_handler_raises(self):
        kept = []
        store = self.pool.store(len)
        store.acquire("a").release()
        for call in (
                lambda: kept.append(self.pool.acquire(self.a)),
                lambda: kept.append(self.pool.try_acquire(self.a)),
                lambda: kept.append(store.acquire("a")),
                lambda: self.pool.acquire_then(
                    lambda held, _grant: kept.append(held), self.a),
                lambda: store.acquire_then(
                    lambda held, _error: kept.append(held), "a"),
                lambda: kept.append(self.pool.pause()),
                lambda: self.pool.pause().resume(),
                lambda: self.pool.acquire(self.a).release()):
            for _ in interrupted(call):
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", ResourceWarning)
                    while kept:
                        kept.pop().__exit__()
                    if self.pool.stats()["out"] == 1:
                        gc.collect()  # an exception that was told
                self.assertEqual(self.pool.stats()["out"], 0)
                self.assertTrue(self.is_free(self.a))
                self.assertEqual(len(hwt_checkout._waiting), 0)

    def test_what_waits_is_told_wherever_a_handler_raises(self):
        with self.pool.acquire(self.a):
            for _ in interrupted(
                    lambda: self.pool.acquire_then(
                        lambda _held, grant: self.told.append(grant), self.a)):
                waiters = list(hwt_checkout._waiting.values())
                self.assertEqual(self.pool.stats()["waiting"], len(waiters))
                for waiter in waiters:
                    self.assertTrue(waiter.cancel())
                self.assertEqual(self.told, [Grant.CANCELLED] * len(waiters))
                self.told.clear()

    def test_a_member_stays_one_wherever_a_handler_raises(self):
        group = self.pool.group()
        for _ in interrupted(group.add):
            held = self.pool.try_acquire(group)
            self.assertEqual(held is not None, len(group._members) == 1)
            if held is not None:
                held.retire(held.member(group))
                held.release()


class Process(unittest.TestCase):
    def test_a_program_may_end_while_something_waits(self):
        said = run_program("""
import hwt, hwt_checkout
timer = hwt.Timer()
pool = hwt_checkout.Checkout(timer)
a = pool.object()
held = pool.acquire(a)
pool.acquire_then(lambda held, grant: print(grant.name), a, timeout=100)
print("end")
""")
        self.assertEqual((said.stdout, said.stderr), ("end\nSHUT_DOWN\n", ""))

    def test_a_store_is_trimmed_at_the_end_of_the_program(self):
        said = run_program("""
import hwt, hwt_checkout
timer = hwt.Timer()
pool = hwt_checkout.Checkout(timer)
store = pool.store(len, lambda key, value: print(key, value))
with store.acquire("abc", "d") as held:
    held.pin(1)
""")
        self.assertEqual((said.stdout, said.stderr), ("b'abc' 3\n", ""))

    def test_a_forked_child_gets_errors(self):
        said = run_program("""
import errno, hwt, hwt_checkout, os, sys
timer = hwt.Timer()
pool = hwt_checkout.Checkout(timer)
a, b = pool.object(), pool.object()
held = pool.acquire(a)
waiter = pool.acquire_then(lambda held, grant: print(grant.name), a)
pid = os.fork()
if pid == 0:
    for call in (waiter.cancel, held.release, lambda: pool.acquire(b)):
        try:
            call()
        except hwt.Error as error:
            print(error.errno == errno.EOWNERDEAD)
    sys.exit(0)
os.waitpid(pid, 0)
print(waiter.cancel())
held.release()
""")
        self.assertEqual(
            (said.stdout, said.stderr),
            ("True\nTrue\nTrue\nCANCELLED\nTrue\n", ""))


class Layout(unittest.TestCase):
    def test_sizes_and_offsets(self):
        check_layout(self, "modules/checkout/hwt_checkout.h", {
            "hwt_object": hwt_checkout._Object,
            "hwt_group": hwt_checkout._Group,
            "hwt_item": hwt_checkout._Item,
            "hwt_request": hwt_checkout._Request,
            "hwt_checkout_options": hwt_checkout._Options,
            "hwt_checkout_stats": hwt_checkout._Stats,
            "hwt_store_request": hwt_checkout._StoreRequest,
            "hwt_store_item": hwt_checkout._StoreItem,
            "hwt_loaded": hwt_checkout._Loaded,
            "hwt_store_options": hwt_checkout._StoreOptions,
            "hwt_store_stats": hwt_checkout._StoreStats,
        })

    def test_functions(self):
        # Items with flags replace the first; a pthread_mutex_t and executors
        # are C's.
        check_functions(self, "modules/checkout/hwt_checkout.h",
                        hwt_checkout._lib, """
            hwt_request_init
            hwt_checkout_acquire_wait_unlock hwt_request_run hwt_store_run""")


if __name__ == "__main__":
    unittest.main()
