# SPDX-License-Identifier: Apache-2.0
"""hwt_checkout for Python: sets of objects, granted whole, with a deadline and
a pause.

    pool = hwt_checkout.Checkout(timer)
    a, b = pool.object(connect()), pool.object(connect())
    with pool.acquire(a, b, timeout=0.05):
        transfer(a.value, b.value)
    pool.acquire_then(lambda held, grant: ..., a, timeout=0.05)

    connections = pool.group()
    connections.add(connect()), connections.add(connect())
    with pool.acquire(connections, timeout=0.05) as held:
        held.member(connections).value.send(...)

    with pool.acquire(hwt_checkout.Read(a), b):  # beside others that read a
        b.value = a.value

    accounts = pool.store(read_account, write_account, limit=1000)
    with accounts.acquire("alice", "bob", timeout=0.05) as held:
        transfer(held[0], held[1])

It belongs to hwt.py, loads the library that lies beside libhwt, and treats
times, errors, the end of the program and forked children as hwt.py does.
hwt_checkout.h has the promises.

LIFETIMES. The module keeps the memory of objects and requests for as long as
the library uses it; a Checkout is freed when nothing refers to it, and neither
its holds nor what waits do. A Hold or a Pause that was forgotten ends when it
is freed, with a ResourceWarning. A Store is freed, and all of it unloaded, when
nothing refers to it, as a Checkout; at the end of the program it is trimmed.

THREADS. Any thread may call everything here, but one at a time uses a Hold.
acquire and pause wait without the interpreter's lock, and a signal's handler
runs when the wait is over: if it raises, nothing is granted, and nothing
paused. A callable of acquire_then is called in any call that releases or ends
something, of any thread, by the timer's worker, or where Mailbox.run is called:
it returns soon, and acquire and pause raise EDEADLK in it. Do not call release
with a lock that it takes. What it raises goes to sys.unraisablehook.
"""

import atexit
import concurrent.futures
import ctypes
import enum
import errno
import itertools
import math
import warnings
import weakref

import hwt

__all__ = ["NEVER", "Checkout", "Grant", "Group", "Hold", "Mailbox", "Object",
           "Pause", "Read", "Store", "StoreHold", "StoreWaiter", "Waiter",
           "Weighed"]


NEVER = 2**32 - 1  # for hold_after


class Grant(enum.IntEnum):
    """How a wait has ended."""
    GRANTED = 1
    EXPIRED = 2
    CANCELLED = 3
    RETIRED = 4
    SHUT_DOWN = 5


class _Object(ctypes.Structure):
    _fields_ = [("private_words", ctypes.c_uint64 * 4)]


class _Request(ctypes.Structure):
    _fields_ = [("private_words", ctypes.c_uint64 * 16)]


class _Group(ctypes.Structure):
    _fields_ = [("any", _Object), ("private_words", ctypes.c_uint64 * 4)]


class _Item(ctypes.Structure):
    _fields_ = [("wanted", ctypes.c_void_p), ("granted", ctypes.c_void_p),
                ("use", ctypes.c_int)]


_Granted = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(_Request), ctypes.c_void_p, ctypes.c_int)


class _Options(ctypes.Structure):
    _fields_ = [
        ("shards", ctypes.c_uint32),
        ("hold_after", ctypes.c_uint32),
        ("executor", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("list_grants", ctypes.c_uint64),
        ("reserved", ctypes.c_uint64 * 5),
    ]


class _Stats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "out waiting granted waited expired cancelled retired shut_down"
            " woken pauses released longest_wait_ns wait_ns_sum wait_ns_max"
        ).split()
    ] + [("wait_ns_histogram", ctypes.c_uint64 * 64),
         ("reserved", ctypes.c_uint64 * 8)]


class _StoreRequest(ctypes.Structure):
    _fields_ = [("private_words", ctypes.c_uint64 * 82)]


class _StoreItem(ctypes.Structure):
    _fields_ = [("key", ctypes.c_char_p), ("size", ctypes.c_size_t),
                ("value", ctypes.c_void_p), ("use", ctypes.c_int)]


class _Loaded(ctypes.Structure):
    _fields_ = [("value", ctypes.c_void_p), ("weight", ctypes.c_uint32)]


_StoreLoad = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_size_t, ctypes.POINTER(_Loaded))
_StoreUnload = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p,
    ctypes.c_size_t, ctypes.c_void_p)
_StoreGranted = ctypes.CFUNCTYPE(
    None, ctypes.POINTER(_StoreRequest), ctypes.c_void_p, ctypes.c_int)


class _StoreOptions(ctypes.Structure):
    _fields_ = [
        ("load", _StoreLoad),
        ("unload", _StoreUnload),
        ("ctx", ctypes.c_void_p),
        ("limit", ctypes.c_uint64),
        ("idle_ns", ctypes.c_uint64),
        ("backoff_ns", ctypes.c_uint64),
        ("shards", ctypes.c_uint32),
        ("executor", ctypes.c_void_p),
        ("name", ctypes.c_char_p),
        ("reserved", ctypes.c_uint64 * 7),
    ]


class _StoreStats(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_uint64)
        for name in (
            "loaded weight jobs hits misses joined backed_off loads failures"
            " unloads refusals"
        ).split()
    ] + [("reserved", ctypes.c_uint64 * 8)]


def _load():
    pointer, out, integer = ctypes.c_void_p, ctypes.POINTER, ctypes.c_int
    request, ns, size = out(_Request), ctypes.c_uint64, ctypes.c_size_t
    return hwt._library("libhwt_checkout", (
        (integer, "hwt_checkout_create", out(pointer), pointer, out(_Options)),
        (integer, "hwt_checkout_shutdown", pointer),
        (integer, "hwt_checkout_destroy", pointer),
        (integer, "hwt_object_init", pointer, out(_Object), ctypes.c_uint64),
        (integer, "hwt_object_retire", pointer, out(_Object)),
        (integer, "hwt_group_init", pointer, out(_Group), ctypes.c_uint64),
        (integer, "hwt_group_add", pointer, out(_Group), out(_Object)),
        (integer, "hwt_group_retire", pointer, out(_Group)),
        (integer, "hwt_request_init_items", request, out(_Item), size,
         _Granted, pointer),
        (integer, "hwt_request_init_pause", pointer, request, pointer, size,
         _Granted, pointer),
        (integer, "hwt_request_mailbox_create", out(pointer)),
        (integer, "hwt_request_mailbox_fd", pointer),
        (pointer, "hwt_request_mailbox_executor", pointer),
        (integer, "hwt_request_mailbox_run", pointer, size, out(size)),
        (integer, "hwt_request_mailbox_destroy", pointer),
        (integer, "hwt_checkout_try", pointer, request),
        (integer, "hwt_checkout_acquire", pointer, request, ns),
        (integer, "hwt_checkout_acquire_wait", pointer, request, ns),
        (integer, "hwt_checkout_release", pointer, request),
        (integer, "hwt_checkout_cancel", pointer, request),
        (integer, "hwt_checkout_pause", pointer, ns),
        (integer, "hwt_checkout_resume", pointer),
        (integer, "hwt_checkout_read_stats", pointer, out(_Stats)),
        (integer, "hwt_checkout_stats_write", pointer, pointer, integer),
        (integer, "hwt_checkout_dump", pointer, pointer),
        (integer, "hwt_store_create", out(pointer), pointer,
         out(_StoreOptions)),
        (integer, "hwt_store_destroy", pointer),
        (integer, "hwt_store_request_init", pointer, out(_StoreRequest),
         out(_StoreItem), size, _StoreGranted, pointer),
        (integer, "hwt_store_acquire", pointer, out(_StoreRequest), ns),
        (integer, "hwt_store_acquire_wait", pointer, out(_StoreRequest), ns),
        (integer, "hwt_store_release", pointer, out(_StoreRequest)),
        (integer, "hwt_store_cancel", pointer, out(_StoreRequest)),
        (integer, "hwt_store_pin", pointer, out(_StoreRequest), size,
         ctypes.c_bool),
        (integer, "hwt_store_trim", pointer, ctypes.c_uint64),
        (integer, "hwt_store_complete", pointer, pointer, integer,
         out(_Loaded)),
        (integer, "hwt_store_read_stats", pointer, out(_StoreStats)),
        (integer, "hwt_store_stats_write", pointer, pointer, integer),
        (integer, "hwt_store_dump", pointer, pointer),
    ))


_lib = _load()


def _load_files():
    libc = ctypes.CDLL(None, use_errno=True)
    libc.open_memstream.restype = ctypes.c_void_p
    libc.open_memstream.argtypes = (
        ctypes.POINTER(ctypes.c_void_p), ctypes.POINTER(ctypes.c_size_t))
    libc.fclose.argtypes = (ctypes.c_void_p,)
    libc.free.argtypes = (ctypes.c_void_p,)
    return libc


_libc = _load_files()


def _text(function, pointer, *arguments):
    """What a function of the library writes to a FILE, as str."""
    text, size = ctypes.c_void_p(), ctypes.c_size_t()
    file = _libc.open_memstream(ctypes.byref(text), ctypes.byref(size))
    if not file:
        raise MemoryError
    result = function(pointer, file, *arguments)
    _libc.fclose(file)
    try:
        hwt._check(result)
        return ctypes.string_at(text, size.value).decode(errors="replace")
    finally:
        _libc.free(text)

# What waits: the number that is its arg, and the Waiter.
_waiting = {}
_numbers = itertools.count(1)
_ending = []


@_Granted
def _granted(_request, number, grant):
    waiter = _waiting.pop(number)
    waiter._tell(Grant(grant))


def _to_order(order):
    if not 0 <= order < 2**64:
        raise ValueError(f"not a number of 64 bits: {order}")
    return order


class Object:
    """Part of sets that are checked out, or a member of a group, of which sets
    name any one; Checkout.object and Group.add make it. value is the user's."""

    _use = 0  # HWT_WRITE

    def __init__(self, checkout, value):
        self._checkout = checkout
        self._memory = _Object()
        self._group = None
        self.value = value

    def _address(self):
        return ctypes.addressof(self._memory)

    def _forget(self):
        del self._checkout._memories[id(self._memory)]
        if self._group is not None:
            del self._group._members[self._address()]


class Group:
    """Equal objects: a set that names it has any one of them, which
    Hold.member tells. Checkout.group makes it."""

    _use = 0

    def __init__(self, checkout, order):
        self._checkout = checkout
        self._memory = _Group()
        self._members = {}
        hwt._check(_lib.hwt_group_init(
            checkout._pointer, ctypes.byref(self._memory), order))

    def _address(self):
        return ctypes.addressof(self._memory)

    def add(self, value=None):
        """A new member with this value, free or given to the first that waits.
        Hold.retire takes it out of the group."""
        made = Object(self._checkout, value)
        made._group = self
        # Before it is a member: it may be granted, and retired, at once.
        self._checkout._memories[id(made._memory)] = made._memory
        self._members[made._address()] = made
        answers = []
        try:
            hwt._call(answers, _lib.hwt_group_add, self._checkout._pointer,
                      ctypes.byref(self._memory), ctypes.byref(made._memory))
            hwt._check(answers[0])
        except BaseException:
            if answers != [0]:
                made._forget()
            raise
        return made

    def retire(self):
        """Ends all waits for sets with it with RETIRED. Error with EBUSY: it
        has members, which their holders retire."""
        hwt._check(_lib.hwt_group_retire(
            self._checkout._pointer, ctypes.byref(self._memory)))
        del self._checkout._memories[id(self._memory)]


class Read:
    """In a set: the object for reading, beside others that read it. Who has
    it so and would write it releases it first: Error with ENOTSUP, where a set
    names it for both."""

    _use = 1  # HWT_READ

    def __init__(self, object):
        self.object = object

    def _address(self):
        return self.object._address()


class _Set:
    """A request, and what its memory refers to."""

    _release = _lib.hwt_checkout_release
    _cancel = _lib.hwt_checkout_cancel

    def __init__(self, checkout, objects, number=None):
        self.checkout = checkout
        self.pointer = checkout._pointer
        self.objects = objects
        self.request = _Request()
        self.items = (_Item * len(objects))(
            *(_Item(wanted=each._address(), use=each._use)
              for each in objects))
        self.retired = []  # whose memory a large set uses until it is released
        hwt._check(_lib.hwt_request_init_items(
            ctypes.byref(self.request), self.items, len(objects),
            _granted if number else _Granted(), number))

    def call(self, function, *arguments):
        return function(self.pointer, self.request, *arguments)


class _PauseSet(_Set):
    """A request that pauses objects; without any, all."""

    def __init__(self, checkout, objects, number):
        self.checkout = checkout
        self.pointer = checkout._pointer
        self.objects = objects
        self.request = _Request()
        self.items = ()
        self.retired = []
        self.paused = (ctypes.c_void_p * len(objects))(
            *(each._address() for each in objects)) if objects else None
        hwt._check(_lib.hwt_request_init_pause(
            checkout._pointer, ctypes.byref(self.request), self.paused,
            len(objects), _granted, number))


class Hold:
    """Objects that were granted, until release() or the end of the with."""

    # It is made before they are, so that they have an owner from then on,
    # wherever a signal's handler raises.
    _set = None

    def __init__(self, wanted):
        self._set = wanted

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.release()

    # The names of the module may be gone by then.
    def __del__(self, _warn=warnings.warn):
        if self._set is not None and self._empty() == 0:
            _warn("a Hold was not released", ResourceWarning, source=self)

    def _take(self, function, *arguments):
        """What the function answers; if that is not 0, the hold is empty."""
        try:
            answer = self._set.call(function, *arguments)
        except BaseException:
            self._empty()
            raise
        if answer != 0:
            self._set = None
        return answer

    def _empty(self):
        """-ENOENT: nothing was granted."""
        answer = self._set.call(self._set._release)
        self._set = None
        return answer

    def release(self):
        """Releases all; the second time, nothing."""
        answer = self._empty() if self._set is not None else 0
        # A signal's handler may have raised when that was done before.
        if answer != -errno.ENOENT:
            hwt._check(answer)

    def member(self, group):
        """The Object that was granted as any one of the group; None: it is
        retired."""
        for each, item in self._items():
            if each is group:
                return group._members.get(item.granted)
        raise ValueError("the group is not in this hold")

    def retire(self, object):
        """Takes the object out of this hold for good, and ends all waits for
        sets with it with RETIRED; a member leaves its group, and no wait
        ends."""
        if not any(object is each if object._group is None else
                   object._address() == item.granted
                   for each, item in self._items()):
            raise ValueError("the object is not in this hold for writing")
        self._set.retired.append(object)
        hwt._check(_lib.hwt_object_retire(
            object._checkout._pointer, ctypes.byref(object._memory)))
        object._forget()

    def _items(self):
        return zip(self._set.objects, self._set.items) if self._set else ()


class Waiter:
    """What acquire_then has begun; it need not be kept."""

    _granted = Grant.GRANTED
    _Hold = Hold

    def __init__(self, callable, wanted):
        self._callable = callable
        self._set = wanted
        self._hold = self._Hold(wanted)

    def _end(self, granted):
        callable, self._callable = self._callable, None
        hold, self._hold = self._hold, None
        if not granted:
            hold._set = None
        return callable, hold if granted else None

    def _tell(self, grant):
        callable, hold = self._end(grant == Grant.GRANTED)
        callable(hold, grant)

    def cancel(self):
        """True: the callable is called with CANCELLED, mostly before this
        returns. False: it has been called, or will be: with that too, if the
        objects that it is being tried with are not free."""
        result = self._set.call(self._set._cancel)
        if result not in (-errno.ENOENT, -errno.EINPROGRESS):
            hwt._check(result)
        return result == 0


class Pause:
    """Nothing is out, until resume() or the end of the with."""

    def __init__(self, checkout):
        self._checkout = checkout
        # Of hwt_checkout_pause, then of hwt_checkout_resume: [0] meanwhile.
        self._answers = []

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.resume()

    def __del__(self, _resume=_lib.hwt_checkout_resume, _warn=warnings.warn):
        if self._answers == [0] and _resume(self._checkout._pointer) == 0:
            _warn("a Pause was not resumed", ResourceWarning, source=self)

    def resume(self):
        """Ends the pause; the second time, nothing."""
        if self._answers == [0]:
            hwt._call(self._answers, _lib.hwt_checkout_resume,
                      self._checkout._pointer)
            hwt._check(self._answers[1])


class Mailbox(hwt._Mailbox):
    """For an event loop: callables of acquire_then are called on the thread
    that calls run().

        loop.add_reader(mailbox, mailbox.run)          # asyncio

    It lives as long as a Checkout or a Waiter refers to it."""

    _create = _lib.hwt_request_mailbox_create
    _executor_of = _lib.hwt_request_mailbox_executor
    _fd = _lib.hwt_request_mailbox_fd
    _run = _lib.hwt_request_mailbox_run
    _destroy = hwt._Destroyer(_lib.hwt_request_mailbox_destroy)


_destroy = hwt._Destroyer(_lib.hwt_checkout_destroy)


class Checkout:
    """hold_after: a request that was refused so often is served in order, and
    keeps what it has got while it waits for the next object; 0: 16; 1: first
    come, first served; NEVER: never. executor: a Mailbox, or None: callables
    are called by the thread that decides. name, of at most 15 bytes, is for
    prometheus and dump; with list_grants, dump says what is granted."""

    def __init__(self, timer, *, shards=0, hold_after=0, executor=None,
                 name=None, list_grants=False):
        self._pointer = ctypes.c_void_p()
        self._timer = timer
        self._executor = executor
        # Of objects that are not retired: they stay until the end.
        self._memories = {}
        options = _Options(
            shards=shards, hold_after=hold_after,
            executor=executor._executor if executor else None,
            name=name.encode() if name else None, list_grants=list_grants)
        hwt._check(_lib.hwt_checkout_create(
            ctypes.byref(self._pointer), timer._pointer,
            ctypes.byref(options)))

    def __enter__(self):
        return self

    def __exit__(self, *_exception):
        self.close()

    def __del__(self, _destroy=_destroy):
        if self._pointer:
            _destroy(
                self._pointer, self._timer, self._memories, self._executor)

    def object(self, value=None, order=0):
        """An object with this value. Requests take objects in ascending order,
        and those of equal order in any that is always the same."""
        made = Object(self, value)
        hwt._check(_lib.hwt_object_init(
            self._pointer, ctypes.byref(made._memory), _to_order(order)))
        self._memories[id(made._memory)] = made._memory
        return made

    def group(self, order=0):
        """A group without members, which sets take as an object of that
        order."""
        made = Group(self, _to_order(order))
        self._memories[id(made._memory)] = made._memory
        return made

    def try_acquire(self, *objects):
        """A Hold; None: one of them is out, or there is a pause."""
        held = Hold(_Set(self, objects))
        result = held._take(_lib.hwt_checkout_try)
        if result == -errno.EAGAIN:
            return None
        hwt._check(result)
        return held

    def acquire(self, *objects, timeout=math.inf):
        """A Hold of all of them; waits in this thread. TimeoutError: after so
        many seconds, not all were free."""
        held = Hold(_Set(self, objects))
        result = held._take(
            _lib.hwt_checkout_acquire_wait, hwt._to_ns(timeout))
        if result == -errno.ETIMEDOUT:
            raise TimeoutError(errno.ETIMEDOUT, "not all objects were free")
        hwt._check(result)
        return held

    def acquire_then(self, callable, *objects, timeout=math.inf):
        """Calls callable(hold, grant) once: with a Hold and GRANTED, or with
        None and why. It may be called before this returns; here, if all are
        free. Returns a Waiter."""
        return self._begin(
            Waiter, callable, lambda number: _Set(self, objects, number),
            _lib.hwt_checkout_acquire, timeout)

    def pause_then(self, callable, *objects, timeout=math.inf):
        """A pause that is told, of these objects or, without any, of all:
        calls callable(hold, grant) as acquire_then does, when none of them is
        out. The Hold's end ends the pause."""
        return self._begin(
            Waiter, callable,
            lambda number: _PauseSet(self, objects, number),
            _lib.hwt_checkout_acquire, timeout)

    @staticmethod
    def _begin(kind, callable, make_set, acquire, timeout):
        if _ending:
            raise RuntimeError("the interpreter ends")
        number = next(_numbers)
        made = kind(callable, make_set(number))
        _waiting[number] = made
        answers = []
        try:
            hwt._call(answers, acquire, made._set.pointer, made._set.request,
                      hwt._to_ns(timeout))
            if answers[0] <= 0:
                del _waiting[number]
            hwt._check(answers[0])
        except BaseException:
            # What waits is told whatever a signal's handler raises.
            if answers != [1]:
                _waiting.pop(number, None)
                made._hold._empty()
            raise
        if answers == [0]:
            try:
                made._tell(made._granted)
            except BaseException as error:
                hwt._report(error)
        return made

    def pause(self, timeout=math.inf):
        """Waits until nothing is out; nothing is granted until the Pause ends.
        TimeoutError: after so many seconds something was still out."""
        paused = Pause(self)
        try:
            hwt._call(paused._answers, _lib.hwt_checkout_pause, self._pointer,
                      hwt._to_ns(timeout))
            if paused._answers == [-errno.ETIMEDOUT]:
                raise TimeoutError(errno.ETIMEDOUT, "something is still out")
            hwt._check(paused._answers[0])
        except BaseException:
            paused.resume()
            raise
        return paused

    def close(self):
        """Ends all waits with SHUT_DOWN; what is out stays so until it is
        released."""
        hwt._check(_lib.hwt_checkout_shutdown(self._pointer))

    def store(self, load, unload=None, **options):
        """A Store of objects by key."""
        return Store(self, load, unload, **options)

    def stats(self):
        """The counters of struct hwt_checkout_stats, a dict."""
        stats = _Stats()
        hwt._check(_lib.hwt_checkout_read_stats(
            self._pointer, ctypes.byref(stats)))
        result = {name: getattr(stats, name)
                  for name, _ in _Stats._fields_[:-1]}
        result["wait_ns_histogram"] = list(stats.wait_ns_histogram)
        return result

    def prometheus(self, heads=True):
        """The counters as text for Prometheus; heads: with the lines that may
        occur once on a page."""
        return _text(_lib.hwt_checkout_stats_write, self._pointer,
                     0 if heads else 2)

    def dump(self):
        """Who waits for what and who has it, since when, for people to read;
        with list_grants, also what is granted."""
        return _text(_lib.hwt_checkout_dump, self._pointer)


class Weighed:
    """What a load returns for an object with a weight, in the units of the
    store's limit; others weigh 1."""

    def __init__(self, value, weight):
        self.value = value
        self.weight = weight


def _failure(error):
    """What a job answers for an exception; sys.unraisablehook is told of one
    without an errno."""
    if isinstance(error, OSError) and 0 < (error.errno or 0) < 4096:
        return -error.errno
    if isinstance(error, concurrent.futures.CancelledError):
        return -errno.ECANCELED
    hwt._report(error)
    return -errno.EIO


_LATER = 1  # HWT_STORE_LATER
_answers = itertools.count(1)


class _Jobs:
    """Loads and unloads of a store, and its objects: by the number that is
    an object's value for the library."""

    def __init__(self, load, unload):
        self.user_load, self.user_unload = load, unload
        self.values = {}
        self.pointer = ctypes.c_void_p()
        self.load = _StoreLoad(self._load)
        self.unload = _StoreUnload(self._unload)

    def _load(self, _ctx, job, key, size, loaded):
        try:
            made = self.user_load(ctypes.string_at(key, size))
            if isinstance(made, concurrent.futures.Future):
                made.add_done_callback(
                    lambda done: self._complete(job, self._keep, done))
                return _LATER
            loaded[0] = self._keep(made)
            return 0
        except BaseException as error:
            return _failure(error)

    def _keep(self, made):
        number = next(_answers)
        value, weight = (
            (made.value, made.weight) if isinstance(made, Weighed)
            else (made, 1))
        if not 0 <= weight < 2**32:
            raise OSError(errno.ERANGE, f"not a weight: {weight}")
        self.values[number] = value
        return _Loaded(number, weight)

    def _unload(self, _ctx, job, key, size, number):
        def drop(stays):
            if stays is False:
                raise OSError(errno.EBUSY, "it stays")
            del self.values[number]

        try:
            ended = self.user_unload and self.user_unload(
                ctypes.string_at(key, size), self.values[number])
            if isinstance(ended, concurrent.futures.Future):
                ended.add_done_callback(
                    lambda done: self._complete(job, drop, done))
                return _LATER
            drop(ended)
            return 0
        except BaseException as error:
            return _failure(error)

    def _complete(self, job, end, done):
        result, loaded = 0, None
        try:
            loaded = end(done.result())
        except BaseException as error:
            result = _failure(error)
        _lib.hwt_store_complete(self.pointer, job, result, loaded)


class _StoreSet(_Set):
    """A request of keys."""

    _release = _lib.hwt_store_release
    _cancel = _lib.hwt_store_cancel

    def __init__(self, store, keys, number=None):
        self.store = store
        self.checkout = store._checkout
        self.pointer = store._pointer
        self.objects = ()
        self.request = _StoreRequest()
        self.names = [self._name(each) for each in keys]
        self.items = (_StoreItem * len(keys))(
            *(_StoreItem(key=name, size=len(name),
                         use=Read._use if isinstance(each, Read) else 0)
              for each, name in zip(keys, self.names)))
        hwt._check(_lib.hwt_store_request_init(
            store._pointer, ctypes.byref(self.request), self.items, len(keys),
            _stored if number else _StoreGranted(), number))

    @staticmethod
    def _name(key):
        name = key.object if isinstance(key, Read) else key
        return name.encode() if isinstance(name, str) else bytes(name)


@_StoreGranted
def _stored(_request, number, result):
    _waiting.pop(number)._tell(result)


class StoreHold(Hold):
    """Objects of a Store, by the number of the key: hold[0] is that of the
    first. What is held for reading is not changed."""

    def __len__(self):
        return len(self._set.items) if self._set else 0

    def __getitem__(self, i):
        if not 0 <= i < len(self):
            raise IndexError("no such key in this hold")
        return self._set.store._jobs.values[self._set.items[i].value]

    def pin(self, i, pinned=True):
        """The object is not unloaded, or may be again."""
        self[i]
        hwt._check(self._set.call(_lib.hwt_store_pin, i, pinned))


class StoreWaiter(Waiter):
    """What Store.acquire_then has begun."""

    _granted = 0
    _Hold = StoreHold

    def _tell(self, result):
        callable, hold = self._end(result == 0)
        if result == 0:
            callable(hold, None)
            return
        try:
            hwt._check(result)
        except hwt.Error as error:
            callable(None, error)


_destroy_store = hwt._Destroyer(_lib.hwt_store_destroy)
_stores = weakref.WeakSet()


class Store:
    """Objects by key, each loaded once and unloaded when idle.

    load(key) returns the object, or a Weighed; an OSError that it raises goes
    to all who wait for the object, anything else as EIO. unload(key, object)
    returns False if the object stays, as it does when that raises. key is
    bytes. Both may return a concurrent.futures.Future of that instead, and run
    in a thread that wants an object, or has released one, or in the timer's.

    limit: all objects weigh at most that, or nothing; 0: no limit. idle:
    seconds until what nobody wants is unloaded; 0: never. backoff: seconds for
    which a failure is kept. name: as that of a Checkout."""

    def __init__(self, checkout, load, unload=None, *, limit=0, idle=0,
                 backoff=0, shards=0, name=None):
        self._checkout = checkout
        self._jobs = _Jobs(load, unload)
        self._pointer = self._jobs.pointer
        if not 0 <= limit < 2**64 or not 0 <= shards < 2**32:
            raise ValueError(f"out of range: {limit}, {shards}")
        options = _StoreOptions(
            load=self._jobs.load, unload=self._jobs.unload, limit=limit,
            idle_ns=hwt._to_ns(idle), backoff_ns=hwt._to_ns(backoff),
            shards=shards, name=name.encode() if name else None)
        hwt._check(_lib.hwt_store_create(
            ctypes.byref(self._pointer), checkout._pointer,
            ctypes.byref(options)))
        _stores.add(self)

    # At the end of the program nothing is unloaded any more.
    def __del__(self, _destroy=_destroy_store, _ending=_ending):
        if self._pointer and not _ending:
            _destroy(self._pointer, self._jobs, self._checkout)

    def acquire(self, *keys, timeout=math.inf):
        """A StoreHold of the objects of all keys, str or bytes, or Read of
        one; waits in this thread. TimeoutError: after so many seconds, not
        all were free; a load that this has begun goes on."""
        held = StoreHold(_StoreSet(self, keys))
        result = held._take(
            _lib.hwt_store_acquire_wait, hwt._to_ns(timeout))
        if result == -errno.ETIMEDOUT:
            raise TimeoutError(errno.ETIMEDOUT, "not all objects were free")
        hwt._check(result)
        return held

    def acquire_then(self, callable, *keys, timeout=math.inf):
        """Calls callable(hold, error) once: with a StoreHold and None, or with
        None and an Error: ETIMEDOUT, ECANCELED, ESHUTDOWN, or what a load has
        raised. It may be called before this returns. Returns a
        StoreWaiter."""
        return self._checkout._begin(
            StoreWaiter, callable,
            lambda number: _StoreSet(self, keys, number),
            _lib.hwt_store_acquire, timeout)

    def trim(self, weight=0):
        """Unloads what nobody wants until all weighs at most that."""
        if not 0 <= weight < 2**64:
            raise ValueError(f"out of range: {weight}")
        hwt._check(_lib.hwt_store_trim(self._pointer, weight))

    def stats(self):
        """The counters of struct hwt_store_stats, a dict."""
        stats = _StoreStats()
        hwt._check(_lib.hwt_store_read_stats(
            self._pointer, ctypes.byref(stats)))
        return {name: getattr(stats, name)
                for name, _ in _StoreStats._fields_[:-1]}

    def prometheus(self, heads=True):
        """As Checkout.prometheus."""
        return _text(_lib.hwt_store_stats_write, self._pointer,
                     0 if heads else 2)

    def dump(self):
        """Which objects are wanted, by key, who has them, and which are being
        loaded or unloaded, since when."""
        return _text(_lib.hwt_store_dump, self._pointer)


# Before the timers are closed: this module was imported after hwt.
def _close_all():
    _ending.append(True)
    for each in {each._set.checkout for each in list(_waiting.values())}:
        try:
            each.close()
        except hwt.Error:
            pass  # in a forked child
    for each in list(_stores):
        try:
            each.trim()
        except hwt.Error:
            pass


atexit.register(_close_all)
