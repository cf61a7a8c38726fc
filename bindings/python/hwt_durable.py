# SPDX-License-Identifier: Apache-2.0
"""hwt_durable for Python: delayed tasks that outlive a machine, in Redis.

    with hwt_durable.Client("127.0.0.1:6379") as client:
        client.add("order-1-close", "orders", b"if unpaid", 1800)

    def close(task):
        if not ready(task.payload):
            raise hwt_durable.Retry(5)

    with hwt_durable.Client() as client, \\
            hwt_durable.Scheduler(client), \\
            hwt_durable.Worker(client, "orders", close):
        ...

It belongs to hwt.py, loads the library that lies beside libhwt, and treats
errors and forked children as hwt.py does. hwt_durable.h has the promises.

Ids and payloads are bytes; what is given as str is encoded as UTF-8. Delays are
seconds; due is a time of time.time().

THREADS. Any thread may call everything here; calls wait for the engine without
the interpreter's lock, and a signal's handler runs when they are over: what has
been opened or started by a call that this leaves is closed or stopped. A
worker's callable is called by its threads, with the lock, several at a time if
there are several. What it raises, but for Retry and Fail, goes to
sys.unraisablehook, and the task is tried again as by Retry().

THE END. Clients, schedulers and workers live until close() or stop(). The end
of the program calls these for those that are left, before the interpreter ends:
so it waits for callables that are running.
"""

import atexit
import collections
import ctypes
import enum
import errno
import itertools
import math
import os
import threading

import hwt

__all__ = ["Client", "Delivery", "Fail", "Info", "LATER", "Level", "Missed",
           "Priority", "Release", "Retry", "Schedule", "Scheduler", "State",
           "Task", "Worker", "finish", "next_occurrence"]

PAYLOAD_MAX = 65536
_AT, _REPLACE, _EXPIRES_AT = 1, 2, 4
_RETRY, _FAIL, _LATER, _RELEASE = 1, 2, 3, 4


class Level(enum.IntEnum):
    """What an acknowledged add survives; see hwt_durable.h."""
    MEMORY = 1
    FSYNCED = 2
    REPLICATED = 3


class State(enum.IntEnum):
    PENDING = 1
    DELIVERED = 2
    RUNNING = 3
    SUCCEEDED = 4
    FAILED = 5
    CANCELLED = 6
    QUARANTINED = 7


class Priority(enum.IntEnum):
    """Of what is due in a queue, high ones begin first, and low ones last; see
    hwt_durable.h."""
    NORMAL = 0
    HIGH = 8
    LOW = 16


class Missed(enum.IntEnum):
    """What becomes of occurrences that no scheduler has added in time."""
    LAST = 0
    ALL = 1
    NONE = 2


_CREATE, _REPAIR = 1, 2  # flags of an open


class Retry(Exception):
    """A callable raises it: again, after so many seconds; None: after a
    back-off that grows. Only if attempts are left."""

    def __init__(self, delay=None):
        super().__init__(delay)
        self.delay_ns = hwt.NEVER if delay is None else hwt._to_ns(delay)


class Fail(Exception):
    """A callable raises it: a dead letter, at once."""


class Release:
    """For finish(): back to its queue at once, as if it had not been taken. The
    attempt does not count."""


class _Later:
    def __repr__(self):
        return "hwt_durable.LATER"


# A callable returns it: finish() will say what has become of the task.
LATER = _Later()


# due: instead of delay. max_attempts 0: 20. replace: see hwt_durable.h,
# HWT_DURABLE_REPLACE. expires: it does not begin later than after so many
# seconds; 0: it does not expire. expires_at: a time, instead. retry_first,
# retry_factor, retry_most: how long a Retry() waits; 0: 1 s, 2, 10 min.
# priority: a Priority.
Task = collections.namedtuple(
    "Task", "id queue payload delay due max_attempts replace expires"
    " expires_at retry_first retry_factor retry_most priority",
    defaults=(b"", 0, None, 0, False, 0, None, 0, 0, 0, Priority.NORMAL))

# expires: a time; or None.
Info = collections.namedtuple(
    "Info", "state attempts max_attempts generation due queue payload expires"
    " retry_first retry_factor retry_most priority")

# last: the time of the last occurrence that was added, next: of the next one;
# None: there is none yet. expires: seconds from when an occurrence is due; 0:
# it does not expire. The rest: see Task; 0 if put_schedule() did not say it.
Schedule = collections.namedtuple(
    "Schedule", "name queue payload every cron zone missed max_attempts"
    " last next expires retry_first retry_factor retry_most priority")

# fence: see hwt_durable.h. token: for finish().
Delivery = collections.namedtuple(
    "Delivery",
    "id queue payload attempt max_attempts generation due fence token")

_Write = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p)


class _Log(ctypes.Structure):
    _fields_ = [("write", _Write), ("ctx", ctypes.c_void_p)]


class _Options(ctypes.Structure):
    _fields_ = [
        ("servers", ctypes.c_char_p),
        ("space", ctypes.c_char_p),
        ("user", ctypes.c_char_p),
        ("password_file", ctypes.c_char_p),
        ("shards", ctypes.c_uint32),
        ("slots", ctypes.c_uint32),
        ("tick_ns", ctypes.c_uint64),
        ("level", ctypes.c_uint32),
        ("replicas", ctypes.c_uint32),
        ("skew_ns", ctypes.c_uint64),
        ("timeout_ns", ctypes.c_uint64),
        ("retention_ns", ctypes.c_uint64),
        ("timer", ctypes.c_void_p),
        ("flags", ctypes.c_uint32),
        ("log", ctypes.POINTER(_Log)),
        ("reserved", ctypes.c_uint64 * 8),
    ]


class _Task(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_char_p),
        ("id_length", ctypes.c_size_t),
        ("queue", ctypes.c_char_p),
        ("delay_ns", ctypes.c_uint64),
        ("max_attempts", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("payload", ctypes.c_char_p),
        ("payload_length", ctypes.c_size_t),
        ("expires_ns", ctypes.c_uint64),
        ("retry_first_ns", ctypes.c_uint64),
        ("retry_most_ns", ctypes.c_uint64),
        ("retry_factor", ctypes.c_double),
        ("reserved", ctypes.c_uint64 * 3),
    ]


class _Schedule(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("every_ns", ctypes.c_uint64),
        ("cron", ctypes.c_char_p),
        ("zone", ctypes.c_char_p),
        ("missed", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("task", _Task),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class _ScheduleInfo(ctypes.Structure):
    _fields_ = [
        ("last_unix_ns", ctypes.c_uint64),
        ("next_unix_ns", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 4),
    ]


_Tell = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Schedule),
    ctypes.POINTER(_ScheduleInfo))


class _Info(ctypes.Structure):
    _fields_ = [
        ("state", ctypes.c_int),
        ("attempts", ctypes.c_uint32),
        ("max_attempts", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("due_unix_ns", ctypes.c_uint64),
        ("payload_length", ctypes.c_size_t),
        ("queue", ctypes.c_char * 65),
        ("changed_unix_ns", ctypes.c_uint64),
        ("expires_unix_ns", ctypes.c_uint64),
        ("retry_first_ns", ctypes.c_uint64),
        ("retry_most_ns", ctypes.c_uint64),
        ("retry_factor", ctypes.c_double),
        ("flags", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 3),
    ]


class _Limits(ctypes.Structure):
    _fields_ = [
        ("at_once", ctypes.c_uint64),
        ("rate", ctypes.c_double),
        ("reserved", ctypes.c_uint64 * 4),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "added succeeded failed cancelled dropped begun retried"
            " expired_leases pending delivered running quarantined dead missed"
            " lag_ns given_back replicas replicas_awaited"
            " clock_ahead_ns clock_leap_ns"
        ).split()
    ] + [("reserved", ctypes.c_uint64 * 11)]


class _Token(ctypes.Structure):  # with a Client, as _client
    _fields_ = [("durable", ctypes.c_void_p), ("number", ctypes.c_uint64)]


class _Delivery(ctypes.Structure):
    _fields_ = [
        ("id", ctypes.c_void_p),
        ("queue", ctypes.c_char_p),
        ("id_length", ctypes.c_size_t),
        ("payload", ctypes.c_void_p),
        ("payload_length", ctypes.c_size_t),
        ("attempt", ctypes.c_uint32),
        ("max_attempts", ctypes.c_uint32),
        ("generation", ctypes.c_uint32),
        ("due_unix_ns", ctypes.c_uint64),
        ("retry_delay_ns", ctypes.POINTER(ctypes.c_uint64)),
        ("fence", ctypes.c_uint64),
        ("token", _Token),
        ("reserved", ctypes.c_uint64 * 1),
    ]


_Callback = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(_Delivery))


class _WorkerOptions(ctypes.Structure):
    _fields_ = [
        ("queue", ctypes.c_char_p),
        ("callback", _Callback),
        ("ctx", ctypes.c_void_p),
        ("threads", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("visibility_ns", ctypes.c_uint64),
        ("run_limit_ns", ctypes.c_uint64),
        ("outstanding_max", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 7),
    ]


class _SchedulerOptions(ctypes.Structure):
    _fields_ = [
        ("first_shard", ctypes.c_uint32),
        ("last_shard", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("name", ctypes.c_char_p),
        ("reserved", ctypes.c_uint64 * 8),
    ]


def _load():
    pointer, out, integer = ctypes.c_void_p, ctypes.POINTER, ctypes.c_int
    data, size = ctypes.c_char_p, ctypes.c_size_t
    u32, ns = ctypes.c_uint32, ctypes.c_uint64
    return hwt._library("libhwt_durable", (
        (integer, "hwt_durable_open", out(pointer), out(_Options)),
        (integer, "hwt_durable_close", pointer),
        (integer, "hwt_durable_add", pointer, size, out(_Task), out(integer)),
        (integer, "hwt_durable_cancel", pointer, data, size),
        (integer, "hwt_durable_reschedule", pointer, data, size, ns, u32),
        (integer, "hwt_durable_get", pointer, data, size, out(_Info), pointer,
         size),
        (integer, "hwt_durable_pause", pointer, data),
        (integer, "hwt_durable_resume", pointer, data),
        (integer, "hwt_durable_limit", pointer, data, out(_Limits)),
        (integer, "hwt_durable_schedule_put", pointer, out(_Schedule)),
        (integer, "hwt_durable_schedule_drop", pointer, data),
        (integer, "hwt_durable_schedule_list", pointer, data, _Tell, pointer),
        (integer, "hwt_durable_schedule_next", out(_Schedule), ns, out(ns),
         data),
        (integer, "hwt_durable_read_stats", pointer, out(_Stats)),
        (integer, "hwt_durable_worker_start", out(pointer), pointer,
         out(_WorkerOptions)),
        (integer, "hwt_durable_worker_stop", pointer, ns),
        (integer, "hwt_durable_set_error", pointer, data, size),
        (integer, "hwt_durable_finish", _Token, integer, ns),
        (integer, "hwt_durable_finish_error", _Token, integer, ns, data, size),
        (integer, "hwt_durable_scheduler_start", out(pointer), pointer,
         out(_SchedulerOptions)),
        (integer, "hwt_durable_scheduler_stop", pointer),
    ))


_lib = _load()
_LATE = (-errno.ENOENT, -errno.EINPROGRESS, -errno.EALREADY)


def _bytes(text):
    return text.encode() if isinstance(text, str) else bytes(text)


def _word(text):
    """One that ends with 0 in C."""
    if text is None:
        return None
    word = os.fsencode(text)
    if b"\0" in word:
        raise ValueError("a zero byte")
    return word


def _unix_ns(due):
    # What is before 1970 has passed, too.
    return hwt._to_ns(max(due, 0))


def _when(delay, due):
    if due is None:
        return hwt._to_ns(delay), 0
    return _unix_ns(due), _AT


class _Owner:
    """What lives until it is closed, which no other call of it may overlap."""

    def __init__(self):
        self._pointer = ctypes.c_void_p()
        self._lock = threading.Lock()
        self._calls = set()  # a mark of each that is under way
        self._closed = False

    def _open(self, function, *arguments):
        try:
            hwt._check(function(ctypes.byref(self._pointer), *arguments))
        except BaseException:
            # A signal's handler has raised when it was open.
            if self._pointer:
                _live.append(self)
                self._end()
            raise
        _live.append(self)

    def _call(self, function, *arguments):
        mark = object()
        try:
            with self._lock:
                if self._closed:
                    raise ValueError("it is closed")
                self._calls.add(mark)
            return function(self._pointer, *arguments)
        finally:
            self._calls.discard(mark)

    def _close(self, function, *arguments):
        mark, answers = object(), []
        try:
            with self._lock:
                if self._calls:
                    raise hwt.Error(errno.EBUSY, "another call is under way")
                if self._closed:
                    return 0
                self._calls.add(mark)
                self._closed = True  # so that none begins
            hwt._call(answers, function, self._pointer, *arguments)
            return answers[0]
        finally:
            # A handler runs where something is called, not between.
            if mark in self._calls:
                self._closed = answers == [0]
                try:
                    if self._closed:
                        _live.remove(self)
                finally:
                    self._calls.discard(mark)

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self._end()


class Client(_Owner):
    """A connection to a space, which hwtctl init has made. create: it is made
    if there is none, in the shape that hwt_durable.h explains; repair: shards
    whose data is gone are made anew. 0 and None: the defaults. skew math.inf:
    clocks are not compared. timer: a Timer for every wait; None: one of its
    own, with a tick of 1 ms. log: called with a level and a sentence about
    each error that is not merely raised, by any thread; None: they go to
    stderr."""

    def __init__(self, servers=None, space=None, *, user=None,
                 password_file=None, shards=0, slots=0, tick=0, level=0,
                 replicas=0, skew=0, timeout=0, retention=0, timer=None,
                 log=None, create=False, repair=False):
        super().__init__()
        self._timer = timer
        self._finishing = threading.Lock()  # close, and each finish()
        options = _Options(
            servers=_word(servers), space=_word(space), user=_word(user),
            password_file=_word(password_file), shards=shards, slots=slots,
            tick_ns=hwt._to_ns(tick), level=level, replicas=replicas,
            skew_ns=hwt._to_ns(skew), timeout_ns=hwt._to_ns(timeout),
            retention_ns=hwt._to_ns(retention),
            timer=timer._pointer if timer else None,
            flags=(_CREATE if create else 0) | (_REPAIR if repair else 0))
        if log is not None:
            self._log = _Log(write=_Write(
                lambda _ctx, level, message: log(level, message.decode())))
            options.log = ctypes.pointer(self._log)
        self._open(_lib.hwt_durable_open, ctypes.byref(options))

    def close(self):
        """EBUSY: a worker or scheduler of it has not been stopped, or a call
        is under way, but finish(), which is waited for."""
        with self._finishing:
            hwt._check(self._close(_lib.hwt_durable_close))

    _end = close

    def add(self, id, queue, payload=b"", delay=0, *, due=None,
            max_attempts=0, replace=False, expires=0, expires_at=None,
            retry_first=0, retry_factor=0, retry_most=0,
            priority=Priority.NORMAL):
        """True: stored, to be executed after delay or at due. False: it was
        there already, maybe ended, and nothing has changed; so after an error,
        such as ETIMEDOUT, it can be repeated with the same id. replace: takes
        the place of one that has ended. expires: seconds, or expires_at, a
        time: if it has not begun by then, it is a dead letter, and is not
        executed. retry_first, retry_factor, retry_most, priority: see
        Task."""
        return self.add_all(
            [Task(id, queue, payload, delay, due, max_attempts, replace,
                  expires, expires_at, retry_first, retry_factor,
                  retry_most, priority)])[0]

    def add_all(self, tasks):
        """At most 512. Of each, in a list: True or False as of add. An Error
        has such a list, results, where a number is the errno of what was not
        stored."""
        given = [self._task(*task) for task in tasks]
        results = (ctypes.c_int * len(given))(*[-errno.ECANCELED] * len(given))
        result = self._call(
            _lib.hwt_durable_add, len(given), (_Task * len(given))(*given),
            results)
        told = [-each if each < 0 else each == 0 for each in results]
        try:
            hwt._check(result)
        except hwt.Error as error:
            error.results = told
            raise
        return told

    @staticmethod
    def _task(id, queue, payload=b"", delay=0, due=None, max_attempts=0,
              replace=False, expires=0, expires_at=None, retry_first=0,
              retry_factor=0, retry_most=0, priority=Priority.NORMAL):
        id, payload = _bytes(id), _bytes(payload)
        when, flags = _when(delay, due)
        until, at = _when(expires, expires_at)
        return _Task(
            id=id, id_length=len(id), queue=_word(queue), delay_ns=when,
            max_attempts=max_attempts,
            flags=flags | (_REPLACE if replace else 0) | Priority(priority) |
            (_EXPIRES_AT if at else 0), payload=payload,
            payload_length=len(payload), expires_ns=until,
            retry_first_ns=hwt._to_ns(retry_first),
            retry_most_ns=hwt._to_ns(retry_most), retry_factor=retry_factor)

    def _change(self, function, id, *arguments):
        id = _bytes(id)
        result = self._call(function, id, len(id), *arguments)
        if result not in _LATE:
            hwt._check(result)
        return result == 0

    def cancel(self, id):
        """True: it has not begun, and never will. False: it is running, has
        ended, or is not known."""
        return self._change(_lib.hwt_durable_cancel, id)

    def reschedule(self, id, delay=0, *, due=None):
        """Gives it a new time, and new attempts. False: as cancel, or it was
        cancelled."""
        return self._change(
            _lib.hwt_durable_reschedule, id, *_when(delay, due))

    def find(self, id):
        """Its Info; None: there is none, or its retention is over. The payload
        of an ended task that did not fail is gone."""
        id, info = _bytes(id), _Info()
        payload = ctypes.create_string_buffer(PAYLOAD_MAX)
        result = self._call(
            _lib.hwt_durable_get, id, len(id), ctypes.byref(info), payload,
            PAYLOAD_MAX)
        if result == -errno.ENOENT:
            return None
        hwt._check(result)
        return Info(
            State(info.state), info.attempts, info.max_attempts,
            info.generation, info.due_unix_ns / 1e9, info.queue.decode(),
            payload.raw[:info.payload_length],
            info.expires_unix_ns / 1e9 if info.expires_unix_ns else None,
            info.retry_first_ns / 1e9, info.retry_factor,
            info.retry_most_ns / 1e9, Priority(info.flags))

    def pause(self, queue):
        """No attempt of the queue's tasks begins until resume(), whoever takes
        them. What workers have taken before ends."""
        hwt._check(self._call(_lib.hwt_durable_pause, _word(queue)))

    def resume(self, queue):
        """The end of a pause; workers begin at once."""
        hwt._check(self._call(_lib.hwt_durable_resume, _word(queue)))

    def limit(self, queue, at_once=0, rate=0):
        """How many tasks of the queue all workers together have at a time, and
        begin in a second; 0: any number."""
        limits = _Limits(at_once=at_once, rate=rate)
        hwt._check(self._call(
            _lib.hwt_durable_limit, _word(queue), ctypes.byref(limits)))

    def put_schedule(self, name, queue, payload=b"", *, every=0, cron=None,
                     zone=None, missed=Missed.LAST, max_attempts=0, expires=0,
                     retry_first=0, retry_factor=0, retry_most=0,
                     priority=Priority.NORMAL):
        """Adds a task again and again: every so many seconds, or by a line of
        cron in a time zone (None: UTC); with the ids NAME@TIME. Makes the
        schedule, or changes it; it may be repeated. expires: seconds from
        when an occurrence is due; retry_first and so on, priority: see Task.
        ValueError says what is wrong with the line."""
        payload = _bytes(payload)
        schedule = _schedule(every, cron, zone)
        _next(schedule, 0)
        schedule.name = _word(name)
        schedule.missed = missed
        schedule.task = _Task(
            queue=_word(queue), max_attempts=max_attempts, payload=payload,
            payload_length=len(payload), expires_ns=hwt._to_ns(expires),
            retry_first_ns=hwt._to_ns(retry_first),
            retry_most_ns=hwt._to_ns(retry_most), retry_factor=retry_factor,
            flags=Priority(priority))
        hwt._check(self._call(
            _lib.hwt_durable_schedule_put, ctypes.byref(schedule)))

    def drop_schedule(self, name):
        """True: no occurrence of a later time is added. False: there is no
        such schedule."""
        result = self._call(_lib.hwt_durable_schedule_drop, _word(name))
        if result != -errno.ENOENT:
            hwt._check(result)
        return result == 0

    def schedules(self, name=None):
        """A list of Schedules: that of a name, if there is one; or all."""
        found = []

        def tell(_ctx, given, info):
            given, info = given.contents, info.contents
            found.append(Schedule(
                given.name.decode(), given.task.queue.decode(),
                _payload(given.task),
                given.every_ns // 10**9,
                given.cron and given.cron.decode(),
                given.zone and given.zone.decode(), Missed(given.missed),
                given.task.max_attempts,
                info.last_unix_ns / 1e9 if info.last_unix_ns else None,
                info.next_unix_ns / 1e9 if info.next_unix_ns else None,
                given.task.expires_ns / 1e9, given.task.retry_first_ns / 1e9,
                given.task.retry_factor, given.task.retry_most_ns / 1e9,
                Priority(given.task.flags)))
            return 0

        result = self._call(
            _lib.hwt_durable_schedule_list, _word(name), _Tell(tell), None)
        if result != -errno.ENOENT:
            hwt._check(result)
        return found

    def stats(self):
        """The sums of struct hwt_durable_stats, a dict."""
        stats = _Stats()
        hwt._check(self._call(
            _lib.hwt_durable_read_stats, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[:-1]}


def _payload(task):
    # The field itself would end at a zero byte.
    at = ctypes.c_void_p.from_buffer(task, _Task.payload.offset)
    return ctypes.string_at(at, task.payload_length) \
        if task.payload_length else b""


def _schedule(every, cron, zone):
    return _Schedule(
        every_ns=hwt._to_ns(every), cron=_word(cron), zone=_word(zone))


def _next(schedule, after_ns):
    found, why = ctypes.c_uint64(), ctypes.create_string_buffer(160)
    result = _lib.hwt_durable_schedule_next(
        ctypes.byref(schedule), after_ns, ctypes.byref(found), why)
    if why.value:
        raise ValueError(why.value.decode())
    hwt._check(result)
    return found.value


def next_occurrence(after, *, every=0, cron=None, zone=None):
    """The time of the first occurrence after a time; None: there is none.
    Asks no engine."""
    return _next(_schedule(every, cron, zone), _unix_ns(after)) / 1e9 or None


def _queues(queue):
    if isinstance(queue, (str, bytes)):
        return _word(queue)
    queue = list(queue)
    if any("," in name for name in queue):
        raise ValueError("the name of a queue in a list has a comma")
    return _word(",".join(queue))


# What workers call: the number that is their ctx, the callable and the client.
_callables = {}
_numbers = itertools.count(1)


@_Callback
def _execute(number, given):
    # What left this would be taken for 0: done.
    try:
        return _attempt(number, given.contents)
    except BaseException as error:
        hwt._report(error)
        return _RETRY


def _attempt(number, given):
    callable, client = _callables[number]
    token = _Token.from_buffer_copy(given.token)
    token._client = client
    try:
        result = callable(Delivery(
            ctypes.string_at(given.id, given.id_length), given.queue.decode(),
            ctypes.string_at(given.payload, given.payload_length),
            given.attempt, given.max_attempts, given.generation,
            given.due_unix_ns / 1e9, given.fence, token))
    except Retry as retry:
        given.retry_delay_ns[0] = retry.delay_ns
        return _RETRY
    except Fail as fail:
        _say(given, fail)
        return _FAIL
    except BaseException as error:
        hwt._report(error)
        _say(given, error)
        return _RETRY
    return _LATER if result is LATER else 0


def finish(token, outcome=None):
    """Ends the attempt of a callable that returns LATER; any thread may call
    it, also before that returns. outcome: None, it is done; or a Retry, a Fail
    or a Release. The text of a Fail is kept with the dead letter. False: the
    attempt has an outcome already, or its lease was lost, or the worker was
    stopped, and perhaps the client closed."""
    result, delay_ns = 0, 0
    if isinstance(outcome, Retry):
        result, delay_ns = _RETRY, outcome.delay_ns
    elif isinstance(outcome, Fail):
        result = _FAIL
    elif isinstance(outcome, Release):
        result = _RELEASE
    elif outcome is not None:
        raise TypeError("outcome is None, a Retry, a Fail or a Release")
    text = _text(outcome) if result == _FAIL else None
    with token._client._finishing:
        if token._client._closed:
            return False
        if text is not None:
            result = _lib.hwt_durable_finish_error(
                token, result, 0, text, len(text))
        else:
            result = _lib.hwt_durable_finish(token, result, delay_ns)
    if result != -errno.ESTALE:
        hwt._check(result)
    return result == 0


def _text(error):
    """What is kept if the task becomes a dead letter."""
    try:
        text = str(error)
    except BaseException:
        text = "str() failed"
    return f"{type(error).__name__}: {text}".encode(errors="replace")[:1024]


def _say(given, error):
    text = _text(error)
    _lib.hwt_durable_set_error(ctypes.byref(given), text, len(text))


class Worker(_Owner):
    """Executes the tasks of a queue, or of a list of queues, which take turns,
    until stop(): calls callable with a Delivery; when it returns, the task is
    done. visibility: if the worker is not heard of for so many seconds, others
    execute its tasks; 0: 30. run_limit: an attempt that takes longer is given
    up; 0: none is. outstanding: so many tasks it has at most without an
    outcome; 0: 4096."""

    def __init__(self, client, queue, callable, *, threads=1, visibility=0,
                 run_limit=0, outstanding=0):
        super().__init__()
        self._client = client
        self._number = next(_numbers)
        options = _WorkerOptions(
            queue=_queues(queue),
            callback=_execute, ctx=self._number,
            threads=threads, visibility_ns=hwt._to_ns(visibility),
            run_limit_ns=hwt._to_ns(run_limit), outstanding_max=outstanding)
        _callables[self._number] = callable, client
        try:
            client._call(lambda pointer: self._open(
                _lib.hwt_durable_worker_start, pointer,
                ctypes.byref(options)))
        except BaseException:
            _callables.pop(self._number, None)
            raise

    def stop(self, within=math.inf):
        """Takes no further task, and waits for callables that are running, and
        for finish() of those that have returned LATER; what is not finished
        after so many seconds is tried again as by Retry(). False: a callable
        is running then; call it again. EDEADLK: in its own callable."""
        result = self._close(
            _lib.hwt_durable_worker_stop, hwt._to_ns(within))
        if result == -errno.EBUSY:
            return False
        hwt._check(result)
        _callables.pop(self._number, None)
        return True

    _end = stop


class Scheduler(_Owner):
    """Looks after shards, both 0: all, until stop(). Any number may look after
    the same ones. name: unique among them; None: a random one."""

    def __init__(self, client, first_shard=0, last_shard=0, *, name=None):
        super().__init__()
        self._client = client
        options = _SchedulerOptions(
            first_shard=first_shard, last_shard=last_shard, name=_word(name))
        client._call(lambda pointer: self._open(
            _lib.hwt_durable_scheduler_start, pointer, ctypes.byref(options)))

    def stop(self):
        """Ends it."""
        hwt._check(self._close(_lib.hwt_durable_scheduler_stop))

    _end = stop


# In the order in which they were made: a client before what uses it.
_live = []


# Before the timers are closed: this module was imported after hwt.
def _close_all():
    for each in reversed(list(_live)):
        try:
            each._end()
        except hwt.Error:
            pass  # in a forked child


atexit.register(_close_all)
