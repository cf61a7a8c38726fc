# SPDX-License-Identifier: Apache-2.0
"""hwt for Python: a hashed wheel timer, by ctypes. Python 3.9 and later.

    with hwt.Timer(tick=0.01) as timer:
        idle = timer.schedule(connection.close, 30, executor=box)
        ...
        if not idle.touch(30):
            return  # too late: close() is running, or has run

where box is the Mailbox of the event loop that owns the connection.

The environment variable HWT_LIBRARY names the shared library; otherwise it is
the one that was installed with this file, or else libhwt.so.1 where the loader
finds it.

Times are seconds. A delay of math.inf is never due; a negative one is a
ValueError. What the library refuses raises hwt.Error, an OSError with its errno
and the library's words. hwt.h has the promises.

LIFETIMES. The module refers to a callable until it has run, was cancelled or
was returned by close; nobody has to keep the Timeout for that. All timeouts
share one C function, and their argument is a number: a timeout makes no object
of ctypes that would have to be kept. No order of calls of this module makes the
library use what is gone: what a Timer holds is freed when nothing refers to the
Timer, and close() of an executor is refused while a timer may still need it.

THREADS. Any thread may schedule and cancel. A callable runs in the timer's
worker thread, in a Pool, or where Mailbox.run is called; with the interpreter's
lock, which it waits for, so that what Python does elsewhere makes it late. The
module gives the lock up in each call of the library. Never wait for a callable
(cancel(wait=True), close) while holding a lock that it takes. What a
callable raises goes to sys.unraisablehook.

THE END. Timers and pools live until close(). The end of the program calls it
for those that are left, before the interpreter ends: a thread that ran a
callable later would find none. In a forked child, what was made before the fork
raises Error with EOWNERDEAD, but close() of a Pool or Mailbox without timeouts
frees the child's copy.
"""

import atexit
import collections
import ctypes
import errno
import itertools
import json
import math
import os

__all__ = ["Error", "Mailbox", "Pool", "Timeout", "Timer", "version"]

# make install puts the library's path here, seen from this file's folder.
_LIBRARY = "libhwt.so.1"

NEVER = 2**64 - 1
_MANUAL = 1
_JSON = 1


class _Handle(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64)]


_Task = ctypes.CFUNCTYPE(None, _Handle, ctypes.c_void_p)
_ReadClock = ctypes.CFUNCTYPE(ctypes.c_uint64, ctypes.c_void_p)


class _Clock(ctypes.Structure):
    _fields_ = [("now_ns", _ReadClock), ("ctx", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [
        ("tick_ns", ctypes.c_uint64),
        ("ticks_per_wheel", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("max_pending", ctypes.c_uint64),
        ("slow_task_ns", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
        ("clock", ctypes.POINTER(_Clock)),
        ("wake", ctypes.c_void_p),
        ("log", ctypes.c_void_p),
        ("thread_name", ctypes.c_char_p),
        ("thread_attr", ctypes.c_void_p),
        ("reserved", ctypes.c_uint64 * 8),
    ]


class _Post(ctypes.Structure):
    _fields_ = [("private_words", ctypes.c_uint64 * 2)]


_Posted = ctypes.CFUNCTYPE(None, ctypes.c_void_p)


class _Info(ctypes.Structure):
    _fields_ = [
        ("timeout", _Handle),
        ("task", ctypes.c_void_p),
        ("arg", ctypes.c_void_p),
        ("remaining_ns", ctypes.c_int64),
        ("period_ns", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
        ("reserved", ctypes.c_uint64 * 2),
    ]


class _Unprocessed(ctypes.Structure):
    _fields_ = [
        ("count", ctypes.c_uint64),
        ("private_words", ctypes.c_uint64 * 7),
    ]


def _installed():
    beside = os.path.join(os.path.dirname(os.path.realpath(__file__)), _LIBRARY)
    return beside if os.path.exists(beside) else "libhwt.so.1"


def _load():
    pointer, out = ctypes.c_void_p, ctypes.POINTER
    timer, size = ctypes.c_void_p, ctypes.c_size_t
    ns, u64, i64 = ctypes.c_uint64, ctypes.c_uint64, ctypes.c_int64
    integer, text = ctypes.c_int, ctypes.c_char_p
    # CDLL, not PyDLL: it gives the interpreter's lock up during a call.
    library = ctypes.CDLL(os.environ.get("HWT_LIBRARY") or _installed())
    for result, name, *arguments in (
        (integer, "hwt_create", out(timer), out(_Options)),
        (integer, "hwt_stop", timer, out(_Unprocessed)),
        (ctypes.c_bool, "hwt_unprocessed_next", out(_Unprocessed), out(_Info)),
        (integer, "hwt_destroy", timer),
        (integer, "hwt_new_timeout_on", timer, pointer, out(_Handle), _Task,
         pointer, ns),
        (integer, "hwt_new_periodic", timer, pointer, out(_Handle), _Task,
         pointer, ns, ns),
        (integer, "hwt_cancel", timer, _Handle),
        (integer, "hwt_cancel_wait", timer, _Handle),
        (integer, "hwt_reschedule", timer, _Handle, ns),
        (integer, "hwt_remaining", timer, _Handle, out(i64)),
        (u64, "hwt_pending_timeouts", timer),
        (integer, "hwt_stats_write", timer, pointer, integer),
        (integer, "hwt_advance", timer, out(u64)),
        (integer, "hwt_next_wakeup", timer, out(u64)),
        (integer, "hwt_shared", out(timer)),
        (integer, "hwt_pool_create", out(pointer), ctypes.c_uint, size),
        (pointer, "hwt_pool_executor", pointer),
        (integer, "hwt_pool_destroy", pointer),
        (integer, "hwt_mailbox_create", out(pointer)),
        (integer, "hwt_mailbox_fd", pointer),
        (integer, "hwt_mailbox_run", pointer, size, out(size)),
        (pointer, "hwt_mailbox_executor", pointer),
        (integer, "hwt_mailbox_post", pointer, out(_Post), _Posted),
        (integer, "hwt_mailbox_destroy", pointer),
        (text, "hwt_strerror", integer),
        (text, "hwt_version"),
    ):
        function = getattr(library, name)
        function.restype = result
        function.argtypes = arguments
    return library


_hwt = _load()
_c = ctypes.CDLL(None)
_c.open_memstream.restype = ctypes.c_void_p


class Error(OSError):
    """What a function of the library has refused: errno and its words."""


def _check(result):
    if result < 0:
        raise Error(-result, _hwt.hwt_strerror(result).decode())
    return result


def version():
    """The version of the library that is loaded."""
    return _hwt.hwt_version().decode()


def _to_ns(seconds):
    # ctypes would wrap what is out of range.
    if seconds == math.inf:
        return NEVER
    ns = math.ceil(seconds * 1e9) if 0 <= seconds < 2**34 else 2**63
    if ns >= 2**63:
        raise ValueError(f"not a time that a timer can wait: {seconds} s")
    return ns


def _check_count(count, bits):
    # ctypes would wrap these, too.
    if not 0 <= count < 2**bits:
        raise ValueError(f"not a number of {bits} bits: {count}")
    return count


# What is scheduled: the number that is a task's arg, and its Timeout. The
# operations of a dict on one key are atomic.
_scheduled = {}
_numbers = itertools.count(1)


def _run(_handle, number):
    timeout = _scheduled.get(number)
    callable = timeout and timeout._callable
    # A periodic one may have been cancelled since the library began this run.
    if callable is None:
        return
    try:
        callable()
    finally:
        if not timeout.periodic:
            timeout._forget()


_task = _Task(_run)


class Timeout:
    """A callable that is scheduled; Timer.schedule makes it."""

    def __init__(self, timer, executor, callable, periodic):
        self._timer = timer
        self._executor = executor
        self._callable = callable
        self._handle = _Handle()
        self._number = next(_numbers)
        self.periodic = periodic

    def _forget(self):
        _scheduled.pop(self._number, None)
        self._callable = None

    def cancel(self, wait=False):
        """True: it did not start, and never will. False: it is running, or has
        ended. A periodic one does not run again in any case. With wait, it is
        not running when this returns, unless this is called in the callable."""
        call = _hwt.hwt_cancel_wait if wait else _hwt.hwt_cancel
        result = call(self._timer._pointer, self._handle)
        if result == -errno.EDEADLK:
            result = _hwt.hwt_cancel(self._timer._pointer, self._handle)
        if result == 0 or self.periodic:
            self._forget()
        if result not in (-errno.EINPROGRESS, -errno.ENOENT):
            _check(result)
        return result == 0

    def reschedule(self, delay):
        """Moves the deadline to delay seconds from now. False: it is running or
        handed over to an executor, or has ended."""
        result = _hwt.hwt_reschedule(
            self._timer._pointer, self._handle, _to_ns(delay))
        if result in (-errno.EINPROGRESS, -errno.ENOENT):
            return False
        _check(result)
        return True

    def touch(self, delay):
        """For idle timeouts. True: the callable will run once, delay seconds
        from now. As reschedule, but what an executor holds and has not begun is
        taken back and scheduled again. False: too late, it is running or has
        ended. One that is periodic is only rescheduled. On an Error (the timer
        is closed, there is no place) it has ended.

        Not beside another touch or cancel of the same Timeout in another
        thread: that one may find that it has ended, and this one then schedules
        it again. The loop that runs the Mailbox calls both."""
        if self.reschedule(delay):
            return True
        if self._executor is None or self.periodic:
            return False
        if _ending:
            raise RuntimeError("the interpreter ends")
        executor = self._executor._use()
        if _hwt.hwt_cancel(self._timer._pointer, self._handle) != 0:
            return False
        try:
            _check(_hwt.hwt_new_timeout_on(
                self._timer._pointer, executor, ctypes.byref(self._handle),
                _task, self._number, _to_ns(delay)))
        except BaseException:
            self._forget()
            raise
        return True

    def remaining(self):
        """Seconds to the deadline, negative when overdue, math.inf when never
        due; None: it is running, or has ended."""
        ns = ctypes.c_int64()
        result = _hwt.hwt_remaining(
            self._timer._pointer, self._handle, ctypes.byref(ns))
        if result in (-errno.EINPROGRESS, -errno.ENOENT):
            return None
        _check(result)
        return math.inf if ns.value == 2**63 - 1 else ns.value / 1e9


class _Destroyer:
    """Destroys what nothing refers to any more. What cannot be destroyed yet
    is tried again with the next one, such as a timer of which an executor has
    not released a cancelled timeout. needed lives as long as it."""

    def __init__(self, destroy):
        self._destroy = destroy
        # What is taken out has one owner, whatever thread frees garbage.
        self._held = collections.deque()

    # The names of the module may be gone when this is called.
    def __call__(self, pointer, *needed,
                 _later=(-errno.EBUSY, -errno.EDEADLK)):
        self._held.append((pointer, needed))
        for _ in range(len(self._held)):
            try:
                each = self._held.popleft()
            except IndexError:
                return
            if self._destroy(each[0]) in _later:
                self._held.append(each)


_destroy = _Destroyer(_hwt.hwt_destroy)


class Timer:
    """A wheel with a worker thread. executor is a Pool or a Mailbox for the
    timeouts that name none; None: they run in the worker.

    manual=True: there is no thread; advance() turns the wheel. Its time is that
    of clock, a function like time.monotonic_ns, which must not raise; without
    one it stands still but for advance(seconds)."""

    def __init__(self, tick=0.1, ticks_per_wheel=512, *, manual=False,
                 max_pending=0, slow_task=0, executor=None, clock=None,
                 name=None):
        self._pointer = ctypes.c_void_p()
        self._closed = False
        self._executor = executor
        self._clock = None
        self._now_ns = [10**9]
        self._moved_by_hand = manual and clock is None
        options = _Options(
            tick_ns=_to_ns(tick),
            ticks_per_wheel=_check_count(ticks_per_wheel, 32),
            flags=_MANUAL if manual else 0,
            max_pending=_check_count(max_pending, 64),
            slow_task_ns=_to_ns(slow_task),
            executor=executor._use() if executor else None,
            thread_name=name.encode() if name else None)
        if manual or clock is not None:
            # Must not refer to self, which would then never be freed.
            now = self._now_ns
            read = clock if clock is not None else lambda: now[0]
            self._clock = _Clock(now_ns=_ReadClock(lambda _ctx: read()))
            options.clock = ctypes.pointer(self._clock)
        _check(_hwt.hwt_create(
            ctypes.byref(self._pointer), ctypes.byref(options)))
        _live.add(self)

    @classmethod
    def shared(cls):
        """The timer of the process, with a tick of 10 ms, which serves all
        libraries in it. It cannot be closed."""
        self = cls.__new__(cls)
        self._pointer = ctypes.c_void_p()
        self._closed = False
        self._executor = self._clock = None
        self._moved_by_hand = False
        _check(_hwt.hwt_shared(ctypes.byref(self._pointer)))
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __del__(self, _destroy=_destroy):
        # A run that has not ended in an executor reads the clock once more.
        if getattr(self, "_closed", False):
            _destroy(self._pointer, self._clock)

    def schedule(self, callable, delay, period=None, *, executor=None):
        """Calls callable() once, after delay seconds; with a period, from then
        on at a fixed rate, without those that were missed. Returns the Timeout,
        which need not be kept."""
        if _ending:
            raise RuntimeError("the interpreter ends")
        executor = executor or self._executor
        made = Timeout(self, executor, callable, period is not None)
        common = (self._pointer, executor._use() if executor else None,
                  ctypes.byref(made._handle), _task, made._number,
                  _to_ns(delay))
        _scheduled[made._number] = made
        try:
            # After it was entered, so that close() sees it or is seen.
            if executor is not None:
                executor._use()
            if period is None:
                _check(_hwt.hwt_new_timeout_on(*common))
            else:
                _check(_hwt.hwt_new_periodic(*common, _to_ns(period)))
        except BaseException:
            _scheduled.pop(made._number, None)
            raise
        return made

    def close(self):
        """Stops the timer: when this returns, no callable runs in the worker.
        Returns the Timeouts that did not run. What was handed over to an
        executor may still run there."""
        left = _Unprocessed()
        info = _Info()
        unprocessed = []
        _check(_hwt.hwt_stop(self._pointer, ctypes.byref(left)))
        self._closed = True
        _live.discard(self)
        while _hwt.hwt_unprocessed_next(
                ctypes.byref(left), ctypes.byref(info)):
            timeout = _scheduled.pop(info.arg, None)
            if timeout is not None:
                unprocessed.append(timeout)
        for timeout in list(_scheduled.values()):
            # Its last run was under way.
            if timeout._timer is self and timeout.periodic:
                timeout.cancel()
        return unprocessed

    def advance(self, seconds=0):
        """Turns a manual timer up to now; seconds moves its time first, if that
        is moved by hand. Returns how many callables this has started, without
        those in executors."""
        started = ctypes.c_uint64()
        if seconds and not self._moved_by_hand:
            raise ValueError("this timer's time is not moved by hand")
        if self._moved_by_hand:
            self._now_ns[0] += _to_ns(seconds)
        _check(_hwt.hwt_advance(self._pointer, ctypes.byref(started)))
        return started.value

    def next_wakeup(self):
        """Seconds until a manual timer has something to do, math.inf for
        nothing."""
        ns = ctypes.c_uint64()
        _check(_hwt.hwt_next_wakeup(self._pointer, ctypes.byref(ns)))
        return math.inf if ns.value == NEVER else ns.value / 1e9

    @property
    def pending(self):
        """Timeouts that were accepted and have not ended."""
        return _hwt.hwt_pending_timeouts(self._pointer)

    def stats(self):
        """The counters of struct hwt_stats, a dict: hwt_stats_write's JSON."""
        text, size = ctypes.c_char_p(), ctypes.c_size_t()
        file = ctypes.c_void_p(_c.open_memstream(
            ctypes.byref(text), ctypes.byref(size)))
        if not file:
            raise MemoryError
        result = _hwt.hwt_stats_write(self._pointer, file, _JSON)
        _c.fclose(file)
        try:
            _check(result)
            return json.loads(text.value)
        finally:
            _c.free(text)


class _Executor:
    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def _use(self):
        if self._closed:
            raise ValueError("the executor is closed")
        return self._executor

    def _begin_close(self):
        self._closed = True
        # What its timer will not hand over any more does not count.
        for timeout in list(_scheduled.values()):
            if timeout._executor is self and not timeout._timer._closed:
                self._closed = False
                raise Error(errno.EBUSY, "a timer has timeouts for it")


class Pool(_Executor):
    """Threads that run what is due. A full queue refuses: what was refused runs
    in the worker. queue_limit 0: no limit."""

    def __init__(self, threads, queue_limit=0):
        self._pointer = ctypes.c_void_p()
        self._closed = False
        _check(_hwt.hwt_pool_create(
            ctypes.byref(self._pointer), _check_count(threads, 32),
            _check_count(queue_limit, 64)))
        self._executor = _hwt.hwt_pool_executor(self._pointer)
        _live.add(self)

    def close(self):
        """Runs what the pool holds and joins its threads. First close the
        timers that use it, or cancel their timeouts for it."""
        if self._closed:
            return
        self._begin_close()
        result = _hwt.hwt_pool_destroy(self._pointer)
        self._closed = result == 0
        _check(result)
        _live.discard(self)


# For each post, by the address of its memory: that memory and the callable.
_posts = {}


@_Posted
def _run_post(address):
    _memory, callable = _posts.pop(address)
    callable()


class Mailbox(_Executor):
    """For an event loop: callables run on the thread that calls run().

        loop.add_reader(mailbox, mailbox.run)          # asyncio
        selector.register(mailbox, EVENT_READ, mailbox.run)

    One loop has one mailbox. run and close are called on the loop's thread. It
    lives until close()."""

    def __init__(self):
        self._pointer = ctypes.c_void_p()
        self._closed = False
        _check(_hwt.hwt_mailbox_create(ctypes.byref(self._pointer)))
        self._executor = _hwt.hwt_mailbox_executor(self._pointer)

    def fileno(self):
        """Readable while something is due; do not read it."""
        self._use()
        return _check(_hwt.hwt_mailbox_fd(self._pointer))

    def post(self, callable):
        """Calls callable() on the thread that calls run(), after what this
        thread has posted before."""
        self._use()
        memory = _Post()
        address = ctypes.addressof(memory)
        _posts[address] = memory, callable
        result = _hwt.hwt_mailbox_post(
            self._pointer, ctypes.byref(memory), _run_post)
        if result != 0:
            del _posts[address]
        _check(result)

    def run(self, most=0):
        """Runs what is due and was posted, at most that many (0: all that are
        there now); returns how many were due."""
        started = ctypes.c_size_t()
        self._use()
        _check(_hwt.hwt_mailbox_run(
            self._pointer, _check_count(most, 64), ctypes.byref(started)))
        return started.value

    def close(self):
        """Runs what the mailbox holds and frees it; remove it from the loop
        before. First close the timers that use it, or cancel their timeouts for
        it. EBUSY also: in its own callable."""
        if self._closed:
            return
        self._begin_close()
        result = _hwt.hwt_mailbox_destroy(self._pointer)
        while result == -errno.EBUSY:
            started = ctypes.c_size_t()
            _hwt.hwt_mailbox_run(self._pointer, 0, ctypes.byref(started))
            result = _hwt.hwt_mailbox_destroy(self._pointer)
            if not started.value:
                break
        self._closed = result == 0
        _check(result)


# Timers and pools that have threads, until they are closed.
_live = set()
_ending = []


def _close_all():
    _ending.append(True)
    while _scheduled:
        for number, timeout in list(_scheduled.items()):
            try:
                timeout.cancel(wait=True)
            except Error:
                pass  # in a forked child
            _scheduled.pop(number, None)
    # A pool is closed when no timer hands anything over to it.
    for each in sorted(_live, key=lambda one: isinstance(one, Pool)):
        try:
            each.close()
        except Error:
            pass


atexit.register(_close_all)
