/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import io.netty.util.Version;
import java.io.IOException;
import java.lang.management.GarbageCollectorMXBean;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;

/**
 * What the programs share that put Netty's HashedWheelTimer beside hwt: options
 * given as name=value, results as lines "name unit value", clocks, samples, and
 * the timer with the thread that it works in.
 *
 * Each program runs what it measures once before, on the same timer, until the
 * just-in-time compiler has done its work; then it collects the garbage of that
 * and measures.
 *
 * Who would call it unfair: Netty's users, since in a handler they schedule on
 * their event loop, which has a heap without locks for its own thread, and
 * IdleStateHandler notes the activity and lets its timeout come due, as
 * mutex_wheel_lazy does. HashedWheelTimer is what hwt does as well: timeouts of
 * any thread. Its collector is the one that gets most done, its heap is there
 * from the beginning, leaks are not looked for, and all timeouts share one
 * task. Debian's 4.1.48 is of 2020.
 */
final class Common {
	static final long MS = 1_000_000;
	static final long SECOND = 1_000_000_000;
	private static final Path TASKS = Paths.get("/proc/self/task");
	private static final Map<String, String> OPTIONS = new HashMap<>();
	private static long clockCost;

	private Common() {
	}

	/** Asked for, tells what this is, and ends. */
	private static void about() {
		Version netty = Version.identify().get("netty-common");

		System.out.println("compiler javac and C2 of " +
		    System.getProperty("java.vm.name") + " " +
		    System.getProperty("java.vm.version"));
		System.out.println("flags " + String.join(" ",
		    ManagementFactory.getRuntimeMXBean()
			.getInputArguments()));
		System.out.println("version Netty " + (netty == null
		    ? "of unknown version" : netty.artifactVersion()));
		System.exit(0);
	}

	static void begin(String[] arguments) {
		if (arguments.length == 1 && arguments[0].equals("about"))
			about();
		for (String argument : arguments) {
			int equal = argument.indexOf('=');

			must(equal > 0, "an option without a value: " +
			    argument);
			OPTIONS.put(argument.substring(0, equal),
			    argument.substring(equal + 1));
		}
		Thread.setDefaultUncaughtExceptionHandler((thread, trouble) -> {
			trouble.printStackTrace();
			Runtime.getRuntime().halt(2);
		});
		clockCost = measureClock();
	}

	static long option(String name, long otherwise) {
		String value = OPTIONS.get(name);

		return value == null ? otherwise : Long.parseLong(value);
	}

	static String option(String name, String otherwise) {
		return OPTIONS.getOrDefault(name, otherwise);
	}

	static void must(boolean condition, String what) {
		if (condition)
			return;
		System.err.println("netty: " + what);
		Runtime.getRuntime().halt(2);
	}

	/** The case is one that this timer cannot do. */
	static void cannot(String why) {
		System.err.println("netty: " + why);
		Runtime.getRuntime().halt(77);
	}

	static void print(String name, String unit, double value) {
		System.out.printf(Locale.ROOT, "%s %s %.6g%n", name, unit,
		    value);
	}

	static void print(String name, String unit, long value) {
		System.out.printf(Locale.ROOT, "%s %s %d%n", name, unit, value);
	}

	/** CLOCK_MONOTONIC. */
	static long now() {
		return System.nanoTime();
	}

	/** What a reading of the clock costs, once compiled: the median of the
	 * last of many batches. */
	private static long measureClock() {
		long[] cost = new long[10_001];

		for (int batch = 0; batch < 50; batch++)
			fillClock(cost);
		Arrays.sort(cost);
		return cost[cost.length / 2];
	}

	private static void fillClock(long[] cost) {
		for (int i = 0; i < cost.length; i++) {
			long from = now();

			cost[i] = now() - from;
		}
	}

	static long clockCost() {
		return clockCost;
	}

	/** Asking for a thread's time brings it up to date, which otherwise the
	 * next interrupt of the clock does. */
	static void refreshCpu() {
		ThreadMXBean bean = ManagementFactory.getThreadMXBean();

		for (long thread : bean.getAllThreadIds())
			bean.getThreadCpuTime(thread);
	}

	/** The time on a processor of all threads that are there. */
	private static long threadsCpu() {
		long sum = 0;

		refreshCpu();

		try (DirectoryStream<Path> tasks =
		    Files.newDirectoryStream(TASKS)) {
			for (Path task : tasks)
				sum += threadCpu(task);
		} catch (IOException trouble) {
			throw new IllegalStateException(trouble);
		}
		return sum;
	}

	/** Resolution 10 ms, of user and of system time, but threads that have
	 * ended are counted. */
	private static long processCpu() {
		return ((com.sun.management.OperatingSystemMXBean)
		    ManagementFactory.getOperatingSystemMXBean())
			.getProcessCpuTime();
	}

	/** The first figure of schedstat; 0: the thread is gone. */
	static long threadCpu(Path task) {
		try {
			String text = Files.readString(
			    task.resolve("schedstat"));

			return Long.parseLong(text.split(" ")[0]);
		} catch (IOException trouble) {
			return 0;
		}
	}

	/** A thread's folder in /proc, found by its name, which it has a while
	 * after its start. */
	static Path task(String name) {
		long end = now() + 10 * SECOND;
		Path task;

		while ((task = taskNow(name)) == null) {
			must(now() < end, "no thread named " + name);
			sleepUntil(now() + MS);
		}
		return task;
	}

	private static Path taskNow(String name) {
		try (DirectoryStream<Path> tasks =
		    Files.newDirectoryStream(TASKS)) {
			for (Path task : tasks)
				if (nameOf(task).equals(name))
					return task;
			return null;
		} catch (IOException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** Empty: the thread is gone. */
	private static String nameOf(Path task) {
		try {
			return Files.readString(task.resolve("comm")).trim();
		} catch (IOException trouble) {
			return "";
		}
	}

	/** How often the thread has gone to sleep, and so been woken. */
	static long sleeps(Path task) {
		try {
			for (String line : Files.readAllLines(
			    task.resolve("status")))
				if (line.startsWith("voluntary_ctxt_switches:"))
					return Long.parseLong(
					    line.split("\\s+")[1]);
		} catch (IOException trouble) {
			throw new IllegalStateException(trouble);
		}
		throw new IllegalStateException("no count of switches");
	}

	static double rssMib() {
		try {
			String[] fields = Files.readString(
			    Paths.get("/proc/self/statm")).split(" ");

			return Long.parseLong(fields[1]) * 4096 / 1048576.0;
		} catch (IOException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** Bytes of the heap that live, after a collection. */
	static long live() {
		Runtime runtime = Runtime.getRuntime();

		System.gc();
		return runtime.totalMemory() - runtime.freeMemory();
	}

	static long collections() {
		long count = 0;

		for (GarbageCollectorMXBean bean :
		    ManagementFactory.getGarbageCollectorMXBeans())
			count += bean.getCollectionCount();
		return count;
	}

	/** Binds a thread to a processor, as the programs in C do. Where that
	 * cannot be done, the kernel's choice must do. */
	static void pin(String name, int processor) {
		String task = task(name).getFileName().toString();

		try {
			new ProcessBuilder("taskset", "-cp",
			    Integer.toString(processor), task)
			    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
			    .redirectError(ProcessBuilder.Redirect.DISCARD)
			    .start().waitFor();
		} catch (IOException | InterruptedException trouble) {
			return;
		}
	}

	static void sleepUntil(long until) {
		long left;

		while ((left = until - now()) > 0)
			LockSupport.parkNanos(left);
	}

	static void join(Thread thread) {
		try {
			thread.join();
		} catch (InterruptedException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** A timer, started; the name of its thread is "wheel". Looking for
	 * leaks is off, which is the faster configuration. */
	static HashedWheelTimer create(long tickMs, int buckets) {
		HashedWheelTimer timer = new HashedWheelTimer(work -> {
			Thread thread = new Thread(work, "wheel");

			thread.setDaemon(true);
			return thread;
		}, tickMs, TimeUnit.MILLISECONDS, buckets, false);

		timer.start();
		return timer;
	}

	/** Returns two ticks later, or when the worker has taken over all that
	 * was scheduled before; its queue is first in, first out, and it takes
	 * at most 100,000 in a tick. */
	static void settle(HashedWheelTimer timer, long tickMs) {
		long until = now() + 2 * tickMs * MS;

		awaitWorker(timer);
		sleepUntil(until);
	}

	private static void awaitWorker(HashedWheelTimer timer) {
		CountDownLatch through = new CountDownLatch(1);
		TimerTask task = (Timeout timeout) -> through.countDown();

		timer.newTimeout(task, 0, TimeUnit.NANOSECONDS);
		try {
			must(through.await(600, TimeUnit.SECONDS),
			    "the worker does not keep up");
		} catch (InterruptedException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/** SplitMix64, as the programs in C have it. */
	static final class Random {
		private long state;

		Random(long seed) {
			state = seed;
		}

		long next() {
			long x = state += 0x9e3779b97f4a7c15L;

			x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
			x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
			return x ^ x >>> 31;
		}

		/** Below end, which is an int. */
		int below(int end) {
			return (int)((next() >>> 32) * end >>> 32);
		}
	}

	/**
	 * From its construction to its end: wall time, garbage collections, and
	 * the time on a processor of the whole process, collector and compiler
	 * included. That is the sum over threads, which is exact, or, where one
	 * ended meanwhile and took its share along, the process's own figure.
	 */
	static final class Window {
		private final long fine = threadsCpu();
		private final long coarse = processCpu();
		private final long collected = collections();
		private final long begun = now();
		long wall, cpu, collections;

		/** Wall time ends here; what the worker still owes is awaited
		 * before end. */
		void endWall() {
			wall = now() - begun;
		}

		void end() {
			cpu = threadsCpu() - fine;
			if (processCpu() - coarse > cpu + 50 * MS)
				cpu = processCpu() - coarse;
			collections = collections() - collected;
		}

		void print(long operations) {
			Common.print("cpu_ns", "ns", (double)cpu / operations);
			Common.print("wall_ns", "ns",
			    (double)wall / operations);
		}
	}

	/**
	 * Durations, in memory that is there before the measurement. A power of
	 * two is divided into 64 parts: figures are at most 1.6 % too large.
	 */
	static final class Histogram {
		private static final int PARTS_LOG = 6, PARTS = 1 << PARTS_LOG;
		private final int[] cell = new int[(64 - PARTS_LOG) * PARTS];
		private long count, early, max;

		/** The pages too are there afterwards. */
		void clear() {
			Arrays.fill(cell, 0);
			count = early = max = 0;
		}

		/** What is below zero is early, and counted by itself. */
		void add(long ns) {
			int log = 0, at = (int)ns;

			if (ns < 0) {
				early++;
				return;
			}
			if (ns >= PARTS) {
				log = 63 - Long.numberOfLeadingZeros(ns) -
				    PARTS_LOG;
				at = (log << PARTS_LOG) + (int)(ns >> log);
			}
			cell[at]++;
			count++;
			max = Math.max(max, ns);
		}

		/** A call that began then, less the clock's own cost. */
		void addCall(long from) {
			add(Math.max(0, now() - from - clockCost));
		}

		void addAll(Histogram other) {
			for (int i = 0; i < cell.length; i++)
				cell[i] += other.cell[i];
			count += other.count;
			early += other.early;
			max = Math.max(max, other.max);
		}

		long count() {
			return count;
		}

		long early() {
			return early;
		}

		long max() {
			return max;
		}

		private static long upper(int at) {
			int log = (at >> PARTS_LOG) - 1;

			if (at < 2 * PARTS)
				return at;
			return ((long)at - (log << PARTS_LOG) + 1 << log) - 1;
		}

		/** What so many of a thousand do not exceed. */
		long quantile(int permille) {
			long rank = (count * permille + 999) / 1000, seen = 0;

			for (int at = 0; at < cell.length; at++) {
				seen += cell[at];
				if (seen >= rank && seen > 0)
					return Math.min(upper(at), max);
			}
			return max;
		}

		void printCalls(String name) {
			print(name + "_p50_ns", "ns", quantile(500));
			print(name + "_p99_ns", "ns", quantile(990));
			print(name + "_p999_ns", "ns", quantile(999));
			print(name + "_max_ns", "ns", max);
		}

		void printLate() {
			print("late_p50_ms", "ms", quantile(500) / 1e6);
			print("late_p99_ms", "ms", quantile(990) / 1e6);
			print("late_max_ms", "ms", max / 1e6);
		}
	}

	/** Does nothing but sleep from one millisecond to the next: what it
	 * comes too late the machine itself took away. */
	static final class Control extends Thread {
		private final Path task;
		private volatile boolean quit;
		private long lagMax;

		Control() {
			super("control");
			setDaemon(true);
			start();
			task = task(getName());
		}

		@Override
		public void run() {
			long step = now();

			while (!quit) {
				step += MS;
				sleepUntil(step);
				long lag = now() - step;

				lagMax = Math.max(lagMax, lag);
				if (lag > MS)
					step += lag;
			}
		}

		/** What the thread itself took. */
		long cpu() {
			return threadCpu(task);
		}

		/** Gives the largest lag, in ns. */
		long end() {
			quit = true;
			Common.join(this);
			return lagMax;
		}
	}
}
