# SPDX-License-Identifier: Apache-2.0
"""hwt_purgatory for Python: operations that wait for a condition, with a
deadline.

    writes = hwt_purgatory.Purgatory(timer)
    writes.watch([(PARTITION, 7)], 30, lambda outcome: reply(outcome),
                 lambda: acks >= needed)
    ...
    acks += 1
    writes.check((PARTITION, 7))

It belongs to hwt.py, loads the library that lies beside libhwt, and treats
times, errors, the end of the program and forked children as hwt.py does.
hwt_purgatory.h has the promises.

LIFETIMES. The module refers to an operation's callables until done has
returned; nobody has to keep the Operation for that. A Purgatory is freed when
nothing refers to it, and neither pending operations do; so is a Mailbox.

THREADS. Any thread may call everything here, but one thread at a time runs a
Mailbox. The predicate is called by any thread that calls check or watch, and
done by whoever decides: also by the timer's worker, or by a Mailbox. Do not
hold a lock that a predicate takes while you call check. What done raises goes
to sys.unraisablehook; so does what a predicate raises, which answers False
then.

A key is a pair of numbers from 0 to 2**64 - 1.
"""

import atexit
import ctypes
import enum
import errno
import itertools

import hwt

__all__ = ["Mailbox", "Operation", "Outcome", "Purgatory"]


class Outcome(enum.IntEnum):
    """How an operation has ended."""
    COMPLETED = 1
    EXPIRED = 2
    CANCELLED = 3
    SHUT_DOWN = 4


class _Handle(ctypes.Structure):
    _fields_ = [("id", ctypes.c_uint64)]


class _Key(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_uint64), ("id", ctypes.c_uint64)]


_Try = ctypes.CFUNCTYPE(ctypes.c_bool, _Handle, ctypes.c_void_p)
_Done = ctypes.CFUNCTYPE(None, _Handle, ctypes.c_void_p, ctypes.c_int)
_Visit = ctypes.CFUNCTYPE(
    ctypes.c_bool, _Handle, ctypes.c_void_p, ctypes.c_void_p)


class _Options(ctypes.Structure):
    _fields_ = [
        ("shards", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("max_pending", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("reserved", ctypes.c_uint64 * 7),
    ]


class _Spec(ctypes.Structure):
    _fields_ = [
        ("try_complete", _Try),
        ("done", _Done),
        ("arg", ctypes.c_void_p),
        ("keys", ctypes.POINTER(_Key)),
        ("key_count", ctypes.c_size_t),
        ("delay_ns", ctypes.c_uint64),
        ("at_least", ctypes.c_uint64),
        ("executor", ctypes.c_void_p),
        ("quorum", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 3),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "pending links keys completed expired cancelled shut_down tried"
            " memory_bytes"
        ).split()
    ] + [("reserved", ctypes.c_uint64 * 8)]


def _load():
    pointer, out = ctypes.c_void_p, ctypes.POINTER
    size, integer = ctypes.c_size_t, ctypes.c_int
    return hwt._library("libhwt_purgatory", (
        (integer, "hwt_purgatory_create", out(pointer), pointer,
         out(_Options)),
        (integer, "hwt_purgatory_watch", pointer, out(_Handle), out(_Spec)),
        (integer, "hwt_purgatory_check", pointer, _Key, out(size)),
        (integer, "hwt_purgatory_raise", pointer, _Key, ctypes.c_uint64,
         out(size)),
        (integer, "hwt_purgatory_cancel_key", pointer, _Key, out(size)),
        (integer, "hwt_purgatory_count_key", pointer, _Key, out(size)),
        (integer, "hwt_purgatory_list_key", pointer, _Key, _Visit, pointer,
         out(size)),
        (integer, "hwt_purgatory_read_stats", pointer, out(_Stats)),
        (integer, "hwt_purgatory_shutdown", pointer),
        (integer, "hwt_purgatory_destroy", pointer),
        (integer, "hwt_operation_complete", pointer, _Handle),
        (integer, "hwt_operation_cancel", pointer, _Handle),
        (integer, "hwt_operation_reschedule", pointer, _Handle,
         ctypes.c_uint64),
        (integer, "hwt_operation_mailbox_create", out(pointer)),
        (integer, "hwt_operation_mailbox_fd", pointer),
        (pointer, "hwt_operation_mailbox_executor", pointer),
        (integer, "hwt_operation_mailbox_run", pointer, size, out(size)),
        (integer, "hwt_operation_mailbox_destroy", pointer),
    ))


_lib = _load()


def _number(value):
    # ctypes would wrap what is out of range.
    if not 0 <= value < 2**64:
        raise ValueError(f"not a number of 64 bits: {value}")
    return value


def _key(key):
    kind, id = key
    return _Key(_number(kind), _number(id))


# What is pending: the number that is its arg, and the Operation.
_watched = {}
_numbers = itertools.count(1)
_ending = []


@_Try
def _try(_handle, number):
    try:
        return bool(_watched[number]._predicate())
    except BaseException as error:
        hwt._report(error)
        return False


@_Done
def _done(_handle, number, outcome):
    # It keeps the purgatory, which would wait for this callable elsewhere.
    operation = _watched.pop(number)
    operation._done(Outcome(outcome))


class Operation:
    """What is watched; Purgatory.watch makes it."""

    def __init__(self, purgatory, done, predicate, executor):
        self._purgatory = purgatory
        self._done = done
        self._predicate = predicate
        self._executor = executor
        self._handle = _Handle()

    def _change(self, call, *more):
        result = call(self._purgatory._pointer, self._handle, *more)
        if result != -errno.ENOENT:
            hwt._check(result)
        return result == 0

    def complete(self):
        """Ends it as COMPLETED. True: this call has decided that; if the
        predicate is running, done follows on its thread."""
        return self._change(_lib.hwt_operation_complete)

    def cancel(self):
        """The same as CANCELLED."""
        return self._change(_lib.hwt_operation_cancel)

    def reschedule(self, delay):
        """Moves its deadline to delay seconds from now; math.inf: it has none
        any more. False: it has ended, or its deadline has come."""
        return self._change(
            _lib.hwt_operation_reschedule, hwt._to_ns(delay))


class Mailbox(hwt._Mailbox):
    """For an event loop: done is called on the thread that calls run().

        loop.add_reader(mailbox, mailbox.run)          # asyncio

    It lives as long as a Purgatory or an Operation refers to it."""

    _create = _lib.hwt_operation_mailbox_create
    _executor_of = _lib.hwt_operation_mailbox_executor
    _fd = _lib.hwt_operation_mailbox_fd
    _run = _lib.hwt_operation_mailbox_run
    _destroy = hwt._Destroyer(_lib.hwt_operation_mailbox_destroy)


_destroy = hwt._Destroyer(_lib.hwt_purgatory_destroy)


class Purgatory:
    """executor is a Mailbox for the operations that name none; None: done is
    called by the thread that decides. max_pending 0: no limit. name is
    for hwt_purgatory_stats_write, at most 15 bytes."""

    def __init__(self, timer, *, shards=0, max_pending=0, executor=None,
                 name=None):
        self._pointer = ctypes.c_void_p()
        self._timer = timer
        self._executor = executor
        options = _Options(
            shards=shards, max_pending=max_pending,
            executor=executor._executor if executor else None,
            name=name.encode() if name else None)
        hwt._check(_lib.hwt_purgatory_create(
            ctypes.byref(self._pointer), timer._pointer,
            ctypes.byref(options)))

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __del__(self, _destroy=_destroy):
        if self._pointer:
            _destroy(self._pointer, self._timer, self._executor)

    def watch(self, keys, delay, done, predicate=None, *, at_least=0,
              quorum=0, executor=None):
        """Calls done(outcome) once: COMPLETED, when predicate() is true after a
        check of one of the keys, or now; EXPIRED after delay seconds, or as a
        call here says. at_least: there is no predicate, and it is COMPLETED
        when the value of its one key, or of quorum of its keys, has reached
        that: see raise_to. done may be called before this returns. Returns the
        Operation, which need not be kept."""
        if _ending:
            raise RuntimeError("the interpreter ends")
        keys = [_key(each) for each in keys]
        made = Operation(self, done, predicate, executor)
        number = next(_numbers)
        spec = _Spec(
            done=_done, arg=number, keys=(_Key * len(keys))(*keys),
            key_count=len(keys), delay_ns=hwt._to_ns(delay),
            at_least=_number(at_least), quorum=_number(quorum),
            executor=executor._executor if executor else None)
        if predicate is not None:
            spec.try_complete = _try
        _watched[number] = made
        answers = []
        try:
            hwt._call(answers, _lib.hwt_purgatory_watch, self._pointer,
                      ctypes.byref(made._handle), ctypes.byref(spec))
            hwt._check(answers[0])
        except BaseException:
            # What is pending is told whatever a signal's handler raises.
            if not answers or answers[0] < 0:
                _watched.pop(number, None)
            raise
        return made

    def _count(self, call, *arguments):
        count = ctypes.c_size_t()
        hwt._check(call(self._pointer, *arguments, ctypes.byref(count)))
        return count.value

    def check(self, key):
        """What operations under this key wait for has changed: asks their
        predicates. Returns how many this call has completed."""
        return self._count(_lib.hwt_purgatory_check, _key(key))

    def raise_to(self, key, value):
        """The key's value is at least this now. Returns how many operations
        this call has completed."""
        return self._count(
            _lib.hwt_purgatory_raise, _key(key), _number(value))

    def cancel(self, key):
        """Cancels all operations under this key; returns how many."""
        return self._count(_lib.hwt_purgatory_cancel_key, _key(key))

    def count(self, key):
        """How many operations wait under this key."""
        return self._count(_lib.hwt_purgatory_count_key, _key(key))

    def list(self, key):
        """The Operations that wait under this key, those with at_least last;
        what ends or is watched meanwhile may be missing."""
        numbers = []

        @_Visit
        def visit(_handle, number, _ctx):
            numbers.append(number)
            return True

        hwt._check(_lib.hwt_purgatory_list_key(
            self._pointer, _key(key), visit, None, None))
        found = map(_watched.get, numbers)
        return [each for each in found if each is not None]

    def close(self):
        """Ends all operations with SHUT_DOWN. When this returns, no callable
        is running, but done of what a Mailbox holds is still to come. Not in a
        callable of this purgatory: EDEADLK."""
        hwt._check(_lib.hwt_purgatory_shutdown(self._pointer))

    def stats(self):
        """The counters of struct hwt_purgatory_stats, a dict."""
        stats = _Stats()
        hwt._check(_lib.hwt_purgatory_read_stats(
            self._pointer, ctypes.byref(stats)))
        return {name: getattr(stats, name) for name, _ in _Stats._fields_[:-1]}


# Before the timers are closed: this module was imported after hwt.
def _close_all():
    _ending.append(True)
    for each in {each._purgatory for each in list(_watched.values())}:
        try:
            each.close()
        except hwt.Error:
            pass  # in a forked child


atexit.register(_close_all)
