# SPDX-License-Identifier: Apache-2.0
"""Timers of a live process, or of its core file, in gdb:

    (gdb) source tools/hwt-gdb.py
    (gdb) hwt-timer TIMER       its state, and whether its worker sleeps
    (gdb) hwt-timeouts TIMER    what is pending, and what executors hold

TIMER is an expression: a struct hwt *, or its address; in C++, timer.timer_ of
an hwt::timer. The library needs debug information. Nothing in the process is
called or changed. What its threads were in the middle of when it was stopped
may be seen half done.
"""
import gdb

# core/record.h
INDEX_MASK = (1 << 28) - 1
PAGE_RECORDS = 64
STATES = ["free", "pending", "in an executor", "in an executor, cancelled",
          "running", "returned by stop"]
HAS_ENTRY, PERIODIC, RELATIVE = 0x8, 0x10, 0x20
# core/timer.h, hwt.h
MANUAL = 1
NEVER = (1 << 63) - 1


def library_type(name):
    """The library's structure of this name: the program may have another one,
    as each program has that includes hwt.hpp."""
    function = gdb.lookup_global_symbol("hwt_create")
    symbol = function and gdb.lookup_symbol(
        name, function.symtab.static_block(), gdb.SYMBOL_STRUCT_DOMAIN)[0]
    if symbol is None:
        raise gdb.GdbError("no debug information of the library")
    return symbol.type


def timer_of(argument):
    if not argument:
        raise gdb.GdbError("which timer? an expression is missing")
    kind = library_type("hwt").pointer()
    timer = gdb.parse_and_eval(argument).cast(kind).dereference()
    if not any(field.name == "wheel" for field in timer.type.fields()):
        raise gdb.GdbError("no debug information of the library")
    return timer


def number(value):
    return int(value.cast(gdb.lookup_type("unsigned long")))


def pair(record):
    """Word and deadline, which are 16 bytes whatever their type is."""
    memory = gdb.selected_inferior().read_memory(
        int(record["pair"].address), 16).tobytes()
    return (int.from_bytes(memory[:8], "little"),
            int.from_bytes(memory[8:], "little"))


def text_of(address):
    """The function at an address."""
    block = gdb.block_for_pc(address)
    while block is not None and block.function is None:
        block = block.superblock
    if block is not None:
        return block.function.name
    said = gdb.execute(f"info symbol {address:#x}", to_string=True)
    return said.split(" in section")[0] if " in section" in said \
        else f"{address:#x}"


def caches(store):
    yield store["shared_cache"]
    for i in range(number(store["caches_used"])):
        yield store["caches"][i]


def records(store):
    """Those in use, with their indexes. A slab's records are in pages of 64;
    those in the place of its header are none, and are never committed."""
    slab_type = library_type("slab").pointer()
    record_type = library_type("record").pointer()
    for i in range(number(store["limit"])):
        slab = store["slabs"][i].cast(slab_type)
        committed = number(slab["committed"])
        first = number(slab["first_index"])
        for page in range(64):
            if not committed >> page & 1:
                continue
            for offset in range(page * PAGE_RECORDS,
                                (page + 1) * PAGE_RECORDS):
                yield first + offset, slab.cast(record_type)[offset]


class Timeout:
    def __init__(self, index, record):
        word, self.deadline = pair(record)
        self.state = word & 7
        if self.state == 0:
            return
        self.id = word & ~INDEX_MASK | index
        self.has_entry = word & HAS_ENTRY
        self.relative = word & RELATIVE
        self.period = number(record["period_ns"]) if word & PERIODIC else 0
        self.task = number(record["task"])
        self.arg = number(record["arg"])
        self.executor = number(record["executor"])
        self.tick = number(record["entry_tick"]) \
            if self.has_entry and number(record["entry_at"]) else None

    def when(self):
        if self.deadline == NEVER:
            return "never due"
        return f"{'delay' if self.relative else 'deadline'} {self.deadline} ns"

    def place(self, wheel):
        if self.state not in (1, 5):
            return ""
        if self.tick is None:
            return "" if self.has_entry else ", in the queue"
        return (f", bucket {self.tick & number(wheel['mask'])}"
                f", round {self.tick >> number(wheel['bits'])}"
                f", tick {self.tick}")

    def line(self, wheel):
        period = f", period {self.period} ns" if self.period else ""
        executor = f", executor {self.executor:#x}" if self.executor else ""
        return (f"{self.id:#x} {STATES[self.state]}, {self.when()}{period}"
                f"{self.place(wheel)}, task {text_of(self.task)}"
                f", arg {self.arg:#x}{executor}")


def timeouts(timer):
    found = [Timeout(*each) for each in records(timer["store"])]
    return sorted((each for each in found if each.state),
                  key=lambda each: (each.deadline, each.id))


def named(value, enum):
    return str(gdb.Value(number(value)).cast(gdb.lookup_type(enum)))


def phase(timer):
    name = named(timer["phase"], "enum phase")
    if number(timer["flags"]) & MANUAL:
        turning = ", being turned" if \
            named(timer["life"]["driver"], "enum driver") == \
            "DRIVER_ACTIVE" else ""
        return "stopped" if name == "PHASE_STOPPED" else f"manual{turning}"
    return name.removeprefix("PHASE_").lower()


def earliest(timer):
    pending = [each for each in timeouts(timer)
               if each.state == 1 and each.deadline != NEVER]
    return f"{pending[0].id:#x}, {pending[0].when()}" if pending else "none"


def sleep(timer):
    before = number(timer["wake_before"])
    if before == 0:
        return "no, or until the next tick at most"
    if before == NEVER:
        return "until it is woken"
    return f"until {before - 1 + number(timer['tick_ns'])} ns"


class TimerCommand(gdb.Command):
    """hwt-timer TIMER: its state, and whether its worker sleeps."""

    def __init__(self):
        super().__init__("hwt-timer", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        timer = timer_of(argument)
        store, wheel = timer["store"], timer["wheel"]
        accepted = sum(number(each["accepted"]) for each in caches(store))
        ended = sum(number(each["ended"]) for each in caches(store))
        next_tick = number(wheel["next_tick"])
        boundary = number(timer["origin_ns"]) + \
            next_tick * number(timer["tick_ns"])
        print(f"timer \"{timer['life']['thread_name'].string()}\": "
              f"{phase(timer)}, tick {number(timer['tick_ns'])} ns, "
              f"{number(wheel['mask']) + 1} buckets")
        print(f"next tick: {next_tick} at {boundary} ns")
        print(f"clock when last read: {number(timer['worker']['now_ns'])} ns")
        print(f"pending: {accepted - ended}")
        returned = sum(number(each["returned"]) for each in caches(store))
        print("in executors: "
              f"{number(timer['dispatched_count']) - returned}")
        print(f"earliest: {earliest(timer)}")
        print(f"asleep: {sleep(timer)}")


class TimeoutsCommand(gdb.Command):
    """hwt-timeouts TIMER: what is pending, and what executors hold."""

    def __init__(self):
        super().__init__("hwt-timeouts", gdb.COMMAND_DATA)

    def invoke(self, argument, from_tty):
        timer = timer_of(argument)
        for each in timeouts(timer):
            print(each.line(timer["wheel"]))


TimerCommand()
TimeoutsCommand()
