#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""hwt-aof-repair, with redis-server as the judge: what it repairs starts, with
all that was whole; what it refuses it leaves as it was.

    repair.py [-v] [CLASS[.test]...]

HWT_BUILD is the folder of the programs. HWT_EVERY: of each byte, only every so
manieth is damaged."""

import os
import re
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
import unittest

from engine import BUILD, CHECK_AOF, LIMIT, Engine, Space, scratch_folder
from programs import DURABLE, NO, UNREACHABLE, USAGE, YES, main

EVERY = int(os.environ.get("HWT_EVERY", "1"))
PROGRAM = os.path.join(BUILD, "hwt-aof-repair")


def repair(folder, *options, **more):
    """As systemd starts it: no terminal, no input, an empty environment, a
    session of its own."""
    return subprocess.run(
        [PROGRAM, *options, folder], env={}, stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT,
        text=True, start_new_session=True, check=False, cwd="/", **more)


def contents(folder):
    found = {}
    for name in sorted(os.listdir(folder)):
        with open(os.path.join(folder, name), "rb") as file:
            found[name] = file.read()
    return found


def write(path, data):
    with open(path, "wb") as file:
        file.write(data)


class Repair(unittest.TestCase):
    """An engine that has ended, with transactions and a plain command in its
    last file. ends: where that is after each of them, with the digest."""

    def setUp(self):
        self.folder = scratch_folder("hwt-repair-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)
        self.files = os.path.join(self.folder, "appendonlydir")

    def engine(self, **config):
        engine = Engine(folder=self.folder, start=False,
                        **{**DURABLE, **config})
        self.addCleanup(engine.close)
        return engine

    def history(self, *groups, **config):
        """Each group is one transaction, or one command; a transaction if it
        is a list."""
        engine = self.engine(**config).start()
        with engine.client() as client:
            self.path = engine.append_only_files()[-1]
            self.ends = [(0, client("DEBUG", "DIGEST"))]
            for group in groups:
                if isinstance(group, list):
                    client.pipeline([("MULTI",), *group, ("EXEC",)])
                else:
                    client(*group)
                self.ends.append((os.path.getsize(self.path),
                                  client("DEBUG", "DIGEST")))
        engine.kill()
        with open(self.path, "rb") as file:
            self.data = file.read()
        self.name = os.path.basename(self.path)
        self.before = contents(self.files)
        return engine

    def some(self):
        return self.history(
            [("SET", "a", "1"), ("ZADD", "z", "5", "a")],
            ("SET", "b", "22"),
            [("HSET", "h", "field", "x" * 12), ("INCRBY", "n", "10")],
            [("SET", "c", "3"), ("ZREM", "z", "a")])

    def starts_with(self, engine, digest):
        """By itself, without another repair."""
        engine.start(repair=False)
        with engine.client() as client:
            self.assertEqual(client("DEBUG", "DIGEST"), digest)
        engine.kill()

    def unchanged(self, what=None):
        self.assertEqual(contents(self.files), self.before, what)

    def cut_to(self, length, damaged=None):
        """The file is that long, and what was cut lies beside it."""
        damaged = self.data if damaged is None else damaged
        now = contents(self.files)
        self.assertEqual(now.pop(self.name), damaged[:length])
        self.assertEqual(now.pop(f"{self.name}.cut-{length}"),
                         damaged[length:])
        expected = dict(self.before)
        del expected[self.name]
        self.assertEqual(now, expected)

    def restore(self):
        shutil.rmtree(self.files)
        os.mkdir(self.files)
        for name, data in self.before.items():
            write(os.path.join(self.files, name), data)

    def refused(self, *said, **options):
        """And nothing is changed."""
        self.before = contents(self.files)
        result = repair(self.files, **options)
        self.assertEqual(result.returncode, NO, result.stderr)
        for text in said:
            self.assertRegex(result.stderr, text)
        self.unchanged()
        return result


class Bytes(Repair):
    def test_a_file_that_ends_at_each_of_its_bytes(self):
        engine = self.some()
        judged = set()
        for length in range(len(self.data) + 1):
            self.restore()
            os.truncate(self.path, length)
            good, digest = [end for end in self.ends if end[0] <= length][-1]
            # SELECT stands before the first.
            if good == 0 and length >= self.data.index(b"*1\r\n"):
                good = self.data.index(b"*1\r\n")
            result = repair(self.files)
            self.assertEqual(result.returncode, YES, result.stderr)
            if length == good:
                self.assertEqual(result.stderr, "")
                continue
            self.assertIn(f"cut from {length} to {good} bytes",
                          result.stderr)
            self.cut_to(good, self.data[:length])
            if good not in judged:
                judged.add(good)
                self.starts_with(engine, digest)
        self.assertGreater(len(judged), len(self.ends) - 1)

    @staticmethod
    def damaged(data, position):
        """Each of its bits, and what numbers and ends of lines may become."""
        old = data[position]
        for new in {*(old ^ 1 << bit for bit in range(8)), 0, 255, *b"09$*\n"}:
            if new != old:
                yield data[:position] + bytes([new]) + data[position + 1:]

    def damage(self, data, step, goods):
        """Damages it, byte by byte. It stays as it is, or is cut to one of
        goods, and the rest is kept. How often it was refused, and cut."""
        refused = cut = 0
        for position in range(0, len(data), step):
            for damaged in self.damaged(data, position):
                write(self.path, damaged)
                result = repair(self.files)
                what = position, damaged[position], result.stderr
                self.assertIn(result.returncode, (YES, NO), what)
                refused += result.returncode == NO
                if os.path.getsize(self.path) == len(data):
                    self.before[self.name] = damaged
                    self.unchanged(what)
                    continue
                self.assertIn(os.path.getsize(self.path), goods, what)
                self.cut_to(os.path.getsize(self.path), damaged)
                self.restore()
                cut += 1
        return refused, cut

    def test_one_byte_that_is_damaged_never_takes_a_transaction(self):
        """Nor anything else, since the last one is a transaction."""
        self.some()
        refused, cut = self.damage(self.data, EVERY, ())
        self.assertGreater(refused, len(self.data) / EVERY)
        self.assertEqual(cut, 0)

    def test_nor_does_it_if_the_end_is_cut_short(self):
        self.some()
        refused, cut = self.damage(
            self.data + b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$2\r\nd",
            EVERY, (len(self.data),))
        self.assertGreater(refused, len(self.data) / EVERY)
        self.assertGreater(cut, len(self.data) / EVERY)

    def test_one_byte_that_is_damaged_may_take_the_last_plain_command(self):
        """And nothing before it."""
        engine = self.history([("SET", "a", "1"), ("SET", "b", "2")],
                              ("SET", "c", "3"))
        last, digest = self.ends[-2]
        self.assertGreater(self.damage(self.data, 1, (last,))[1], 1)
        write(self.path, self.data[:last])
        self.starts_with(engine, digest)


class Damage(Repair):
    """What was acknowledged stands behind it."""

    def test_one_byte_in_the_middle(self):
        """redis-check-aof --fix, which this is instead of, cuts there."""
        engine = Engine(folder=self.folder, **DURABLE)
        self.addCleanup(engine.close)
        with engine.client() as client:
            space = Space(client, "test", 1, 16, 100)
            for i in range(400):
                space("add", 0, f"t{i}", "q", "in", 1000, 1, "p", "")
        engine.kill()
        path = engine.append_only_files()[-1]
        with open(path, "rb") as file:
            data = bytearray(file.read())
        whole = data.count(b"\r\nEXEC\r\n")
        # The library of functions stands before the transactions.
        middle = (data.index(b"MULTI") + len(data)) // 2
        data[data.index(b"*", middle)] ^= 1
        write(path, data)
        said = self.refused("damaged at or near byte").stderr
        before, behind = map(int, re.findall(r"(\d+) transactions", said))
        # The one that is damaged is in neither.
        self.assertEqual(before + behind + 1, whole)
        self.assertLess(abs(before - behind), 5)
        self.assertEqual(repair(self.files, "--dry-run").returncode, NO)
        self.unchanged()
        with self.assertRaises(RuntimeError):
            engine.start(repair=False)
        engine.kill()
        subprocess.run(
            [CHECK_AOF, "--fix", os.path.join(
                self.files, "appendonly.aof.manifest")], input=b"y\n",
            stdout=subprocess.DEVNULL, check=True, timeout=LIMIT)
        with open(path, "rb") as file:
            self.assertEqual(file.read().count(b"\r\nEXEC\r\n"), before)

    def test_the_last_exec(self):
        """What it is damaged to may look as if more were to come."""
        self.some()
        for exec_ in (b"*2\r\n$4\r\nEXEC\r\n", b"*1\r\n$5\r\nEXEC\r\n",
                      b"*1\r\n$9\r\nEXEC\r\n", b"*1\r\n$4\r\nEXEB\r\n",
                      b"*1\r\n$4\r\nEXEC\r\0", b"*1\r\n$4\r\nEXEC\0\n"):
            for rest in (b"", b"*3\r\n$3\r\nSE"):
                data = self.data[:-14] + exec_ + rest
                write(self.path, data)
                self.refused("damaged at or near")

    def test_a_length_that_swallows_what_follows(self):
        self.some()
        wrong = self.data.replace(b"$3\r\nSET\r\n$1\r\nc\r\n$1",
                                  b"$3\r\nSET\r\n$1\r\nc\r\n$8")
        wrong2 = wrong.replace(b"$8", b"$888")
        for data in (wrong, wrong2):
            self.assertNotEqual(data, self.data)
            write(self.path, data)
            self.refused("behind it [1-9][0-9]* commands")

    def test_text_that_looks_like_commands(self):
        """A payload may. Cut within it, somebody is to look; whole, it is
        passed over."""
        text = "*1\r\n$4\r\nEXEC\r\n*3\r\n$3\r\nSET\r\n$1\r\na\r\n$1\r\nb\r\n"
        self.history([("SET", "a", "1"), ("SET", "b", text)],
                     [("SET", "c", "1"), ("SET", "b", text + "end")])
        self.assertEqual(repair(self.files).stderr, "")
        data = self.data[:self.data.rindex(b"end")]
        write(self.path, data)
        self.refused("damaged")

    def test_zeros_at_the_end(self):
        """From a block on, as some file systems leave them after a loss of
        power; but nothing behind them."""
        engine = self.some()
        block = b"\0" * 512
        to_block = b"\0" * (-len(self.data) % 512)
        self.assertTrue(to_block)
        good, digest = self.ends[-1]
        for data in (self.data + to_block + block,
                     self.data + b"*1\r\n$5\r\nMULTI\r\n*3\r\n" + b"\0" * 1024):
            self.restore()
            write(self.path, data)
            self.assertEqual(repair(self.files).returncode, YES)
            self.cut_to(good, data)
            self.starts_with(engine, digest)
        self.restore()
        for data in (self.data + to_block + block + b"x",
                     self.data[:-1] + b"\0",
                     self.data + to_block + block + self.data,
                     self.data[:-20] + b"\0" * 20):
            write(self.path, data)
            self.refused("damaged")


def is_there(process):
    """Not ended: then it has no files any more."""
    try:
        with open(f"/proc/{process}/stat", encoding="ascii") as file:
            return file.read().rsplit(")", 1)[1].split()[0] not in "ZX"
    except OSError:
        return False


class Files(Repair):
    """Manifests, and what else lies in the folder."""

    def rewrite(self, engine, finish):
        """A rewrite of the file begins: there are two to append to. Its child
        has them open too, until it has ended."""
        with engine.client() as client:
            for i in range(20):
                client.pipeline([("MULTI",), ("SET", f"k{i}", "x" * 100),
                                 ("INCR", "n"), ("EXEC",)])
            if not finish:
                client("CONFIG", "SET", "rdb-key-save-delay", "10000000")
            client("BGREWRITEAOF")
            for i in range(20):
                client.pipeline([("MULTI",), ("SET", f"l{i}", "x" * 100),
                                 ("INCR", "n"), ("EXEC",)])
            while finish and b"aof_rewrite_in_progress:1" in \
                    client("INFO", "persistence"):
                pass
            digest = client("DEBUG", "DIGEST")
        with open(f"/proc/{engine.pid}/task/{engine.pid}/children",
                  encoding="ascii") as file:
            children = [int(word) for word in file.read().split()]
        engine.kill()
        for child in children:
            os.kill(child, signal.SIGKILL)
        while any(map(is_there, children)):
            time.sleep(0.001)
        return digest

    def test_two_files_that_are_appended_to(self):
        """As a rewrite that did not end leaves them. Only the last one may end
        early."""
        engine = self.engine().start()
        self.rewrite(engine, finish=False)
        first, last = engine.append_only_files()
        self.before = contents(self.files)
        self.assertEqual(repair(self.files).stderr, "")
        os.truncate(last, os.path.getsize(last) - 5)
        result = repair(self.files)
        self.assertEqual(result.returncode, YES, result.stderr)
        self.assertIn("39 transactions", result.stderr)
        self.assertTrue(os.path.basename(last) in result.stderr)
        engine.start(repair=False)
        with engine.client() as client:
            self.assertEqual(client("GET", "n"), b"39")
        engine.kill()
        self.restore()
        os.truncate(first, os.path.getsize(first) - 5)
        self.refused("19 transactions; behind it [0-9]+ commands, "
                     "20 transactions", os.path.basename(first))

    def test_a_base_that_is_a_snapshot(self):
        engine = self.engine().start()
        digest = self.rewrite(engine, finish=True)
        self.assertEqual(repair(self.files).stderr, "")
        with open(engine.append_only_files()[-1], "ab") as file:
            file.write(b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nS")
        self.assertEqual(repair(self.files).returncode, YES)
        self.starts_with(engine, digest)

    def test_a_base_of_commands(self):
        engine = self.engine(aof_use_rdb_preamble="no").start()
        digest = self.rewrite(engine, finish=True)
        base = [name for name in os.listdir(self.files)
                if name.endswith("base.aof")]
        self.assertEqual(len(base), 1)
        self.assertEqual(repair(self.files).stderr, "")
        self.starts_with(engine, digest)
        path = os.path.join(self.files, base[0])
        os.truncate(path, os.path.getsize(path) - 3)
        self.refused("20 transactions", re.escape(base[0]))

    def test_times_in_the_file(self):
        engine = self.history(
            [("SET", "a", "1"), ("SET", "b", "2")], [("SET", "c", "3")],
            aof_timestamp_enabled="yes")
        self.assertIn(b"#TS:", self.data)
        self.assertEqual(repair(self.files).stderr, "")
        for rest in (b"#", b"#TS:17", b"#TS:1764\r\n*1\r\n$5\r\nMUL"):
            self.restore()
            write(self.path, self.data + rest)
            self.assertEqual(repair(self.files).returncode, YES)
            self.cut_to(len(self.data), self.data + rest)
            self.starts_with(engine, self.ends[-1][1])
        write(self.path, self.data + b"#TX:1\r\n")
        self.refused("damaged")

    def test_a_fresh_machine(self):
        """No folder, an empty one, and what a first start has left."""
        self.assertEqual(repair(self.files).returncode, YES)
        os.mkdir(self.files)
        self.assertEqual(repair(self.files).returncode, YES)
        engine = self.engine().start()
        engine.kill()
        self.assertEqual(repair(self.files).stderr, "")

    def test_data_without_a_manifest(self):
        """With it, the engine would start empty."""
        engine = self.some()
        os.unlink(os.path.join(self.files, "appendonly.aof.manifest"))
        self.refused("no manifest")
        engine.start(repair=False)
        with engine.client() as client:
            self.assertEqual(client("DBSIZE"), 0)

    def test_manifests_that_make_no_sense(self):
        self.some()
        manifest = os.path.join(self.files, "appendonly.aof.manifest")
        old = self.before["appendonly.aof.manifest"]
        for text in (b"x\n", b"file ../x seq 1 type i\n",
                     b"file a seq 1 type x\n", b"file a\n",
                     b'file "a\\n" seq 1 type i\n', old + b"\0\xff\n",
                     old + b"file missing seq 9 type i\n"):
            write(manifest, text)
            self.before = contents(self.files)
            result = repair(self.files)
            self.assertEqual(result.returncode, NO if b"\0" not in text
                             else YES, (text, result.stderr))
            self.unchanged()
        write(manifest, old)
        write(manifest + "2.manifest", old)
        self.refused("more than one manifest")

    def test_a_name_with_a_space(self):
        engine = self.history([("SET", "a", "1"), ("SET", "b", "2")],
                              appendfilename='"with space.aof"')
        data = self.data + b"*1\r"
        write(self.path, data)
        self.assertEqual(repair(self.files).returncode, YES)
        self.cut_to(len(self.data), data)
        self.starts_with(engine, self.ends[-1][1])

    def test_links_and_others(self):
        self.some()
        other = os.path.join(self.folder, "other")
        shutil.move(self.path, other)
        os.symlink(other, self.path)
        self.assertEqual(repair(self.files).returncode, UNREACHABLE)
        os.unlink(self.path)
        os.mkfifo(self.path)
        self.assertEqual(repair(self.files).returncode, NO)

    def test_the_command_line(self):
        for words in ((), ("--x", "/tmp"), ("/tmp", "/tmp"), ("",)):
            result = subprocess.run(
                [PROGRAM, *words], stdout=subprocess.PIPE,
                stderr=subprocess.PIPE, timeout=LIMIT, check=False)
            self.assertEqual(result.returncode, USAGE)
            self.assertIn(b"usage:", result.stderr)
        self.assertEqual(repair("/dev/null").returncode, UNREACHABLE)


class Cut(Repair):
    """How it is done."""

    def torn(self):
        """Some bytes at the end are the begin of a transaction."""
        engine = self.some()
        self.whole = len(self.data)
        self.data += b"*1\r\n$5\r\nMULTI\r\n*3\r\n$3\r\nSET\r\n$2\r\nd"
        write(self.path, self.data)
        self.before = contents(self.files)
        return engine

    def test_a_dry_run_tells_and_leaves_all_as_it_is(self):
        self.torn()
        result = repair(self.files, "--dry-run")
        self.assertEqual(result.returncode, NO)
        self.assertIn("3 transactions", result.stderr)
        self.unchanged()
        self.assertEqual(repair(self.files).returncode, YES)
        result = repair(self.files, "--dry-run")
        self.assertEqual(result.returncode, YES)
        self.assertIn("whole: 8 commands, 3 transactions", result.stderr)

    def test_owner_and_mode_stay_and_the_copy_has_them(self):
        self.torn()
        os.chmod(self.path, 0o640)
        if os.geteuid() == 0:
            os.chown(self.path, 12345, 54321)
        before = os.stat(self.path)
        self.assertEqual(repair(self.files).returncode, YES)
        self.cut_to(self.whole)
        for path in (self.path, f"{self.path}.cut-{self.whole}"):
            after = os.stat(path)
            self.assertEqual(
                (after.st_uid, after.st_gid, stat.S_IMODE(after.st_mode)),
                (before.st_uid, before.st_gid, 0o640))
        self.assertEqual(os.stat(self.path).st_ino, before.st_ino)

    def test_a_copy_is_never_written_over(self):
        self.torn()
        for name in ("", ".1", ".2"):
            write(self.path, self.data)
            self.assertEqual(repair(self.files).returncode, YES)
            with open(f"{self.path}.cut-{self.whole}{name}", "rb") as file:
                self.assertEqual(file.read(), self.data[self.whole:])
        self.assertEqual(os.path.getsize(self.path), self.whole)

    def test_without_room_for_the_copy_nothing_is_cut(self):
        self.torn()
        result = repair(self.files, preexec_fn=lambda: (
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN),
            resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))))
        self.assertEqual(result.returncode, UNREACHABLE)
        self.assertIn("nothing was cut", result.stderr)
        self.unchanged()

    def test_while_redis_runs(self):
        """It has the file open, whatever it is doing."""
        engine = self.some()
        engine.start()
        self.assertEqual(repair(self.files).stderr, "")
        with open(self.path, "ab") as file:
            file.write(b"*1\r\n$5\r\nMU")
        engine.send_signal(signal.SIGSTOP)
        self.refused("stop Redis first")
        engine.kill()
        self.assertEqual(repair(self.files).returncode, YES)
        self.starts_with(engine, self.ends[-1][1])

    def test_it_is_on_the_disk_before_it_is_gone(self):
        """The order of what it asks of the system."""
        self.torn()
        trace = os.path.join(self.folder, "trace")
        if not shutil.which("strace"):
            self.skipTest("without strace")
        done = subprocess.run(
            ["strace", "-y", "-o", trace, "-e",
             "trace=write,fchmod,fchown,fsync,ftruncate", PROGRAM, self.files],
            env={**os.environ, "ASAN_OPTIONS": "detect_leaks=0"},
            stderr=subprocess.PIPE, timeout=LIMIT, check=False)
        self.assertEqual(done.returncode, YES, done.stderr)
        with open(trace, encoding="ascii") as file:
            calls = re.findall(r"^(\w+)\(\d+<[^>]*/([^>/]*)>", file.read(),
                               re.M)
        copy = f"{self.name}.cut-{self.whole}"
        calls = [call for call in calls if call[0] != "write" or
                 call[1] == copy]
        self.assertEqual(calls, [
            ("write", copy), ("fchmod", copy), ("fsync", copy),
            ("fsync", "appendonlydir"), ("ftruncate", self.name),
            ("fsync", self.name)])


if __name__ == "__main__":
    sys.exit(main())
