/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import io.netty.util.Version;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.locks.LockSupport;

/**
 * pair, as in perf/calls.h, of Netty's HashedWheelTimer: threads schedule one
 * timeout and cancel the oldest. All that is measured is run once before, for
 * the just-in-time compiler; then the garbage of that is collected.
 *
 * Who would call it unfair: Netty's users, since in a handler they schedule on
 * their event loop, which has a heap without locks for its own thread.
 * HashedWheelTimer is what hwt does as well: timeouts of any thread. Its heap
 * is there from the beginning, leaks are not looked for, and all timeouts share
 * one task. Its worker takes over 100,000 timeouts in a tick at most: the
 * window ends when it has done so.
 */
final class Pair {
	private static final int BATCH = 512;
	private static final long MS = 1_000_000, DELAY_MS = 30_000;
	private static final Path TASKS = Paths.get("/proc/self/task");
	private static final Map<String, String> OPTIONS = new HashMap<>();
	private static final AtomicLong RAN = new AtomicLong();
	private static final TimerTask TASK = timeout -> RAN.incrementAndGet();

	private static HashedWheelTimer timer;
	private static int threads, outstanding;
	private static long tickMs, windowNs, begun;
	private static CyclicBarrier barrier;

	private static long option(String name, long otherwise) {
		String value = OPTIONS.remove(name);

		return value == null ? otherwise : Long.parseLong(value);
	}

	private static void must(boolean condition, String text) {
		if (condition)
			return;
		System.err.println(text);
		Runtime.getRuntime().halt(2);
	}

	private static void print(String name, String unit, double value) {
		System.out.printf(
		    Locale.ROOT, "%s %s %.9g%n", name, unit, value);
	}

	private static void meet() {
		try {
			barrier.await();
		} catch (Exception trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	private static void sleepUntil(long until) {
		long left;

		while ((left = until - System.nanoTime()) > 0)
			LockSupport.parkNanos(left);
	}

	/** A thread that makes pairs. */
	private static final class Caller extends Thread {
		private final Timeout[] table = new Timeout[outstanding];
		int place;
		long done, refused;

		Caller(int number) {
			super("caller-" + number);
		}

		private Timeout schedule() {
			return timer.newTimeout(
			    TASK, DELAY_MS, TimeUnit.MILLISECONDS);
		}

		private void batch() {
			for (int i = 0; i < BATCH; i++, done++) {
				if (!table[place].cancel())
					refused++;
				table[place] = schedule();
				if (++place == outstanding)
					place = 0;
			}
		}

		@Override
		public void run() {
			for (int i = 0; i < outstanding; i++)
				table[i] = schedule();
			for (int i = 0; i < 2; i++) {
				meet();
				done = 0;
				meet();
				do
					batch();
				while (System.nanoTime() - begun < windowNs);
				meet();
			}
			meet();
			for (Timeout timeout : table)
				if (!timeout.cancel())
					refused++;
		}
	}

	/** The time on a processor of all threads, collector and compiler
	 * included: the first figure of schedstat. Asking for a thread's time
	 * brings it up to date. */
	private static long cpu() {
		long sum = 0;

		for (long id : ManagementFactory.getThreadMXBean()
		    .getAllThreadIds())
			ManagementFactory.getThreadMXBean()
			    .getThreadCpuTime(id);
		try (DirectoryStream<Path> tasks =
		    Files.newDirectoryStream(TASKS)) {
			for (Path task : tasks)
				sum += Long.parseLong(Files
				    .readString(task.resolve("schedstat"))
				    .split(" ")[0]);
		} catch (IOException trouble) {
			throw new IllegalStateException(trouble);
		}
		return sum;
	}

	/** Binds a thread to a processor, where there are enough, as the driver
	 * in C does. */
	private static void pin(Thread thread, int processor) {
		if (threads > Runtime.getRuntime().availableProcessors())
			return;
		try (DirectoryStream<Path> tasks =
		    Files.newDirectoryStream(TASKS)) {
			for (Path task : tasks)
				if (Files.readString(task.resolve("comm"))
				    .trim().equals(thread.getName()))
					new ProcessBuilder("taskset", "-cp",
					    Integer.toString(processor),
					    task.getFileName().toString())
					    .redirectOutput(ProcessBuilder
						.Redirect.DISCARD)
					    .start().waitFor();
		} catch (IOException | InterruptedException trouble) {
			return;
		}
	}

	/** Returns two ticks later, or when the worker has taken over all that
	 * was scheduled before: its queue is first in, first out. */
	private static void settle() throws InterruptedException {
		long until = System.nanoTime() + 2 * tickMs * MS;
		CountDownLatch through = new CountDownLatch(1);

		timer.newTimeout(timeout -> through.countDown(), 0,
		    TimeUnit.NANOSECONDS);
		must(through.await(600, TimeUnit.SECONDS),
		    "the worker does not keep up");
		sleepUntil(until);
	}

	/** cpu_ns and wall_ns. */
	private static void measure(Caller[] callers, long window)
	    throws InterruptedException {
		long cpu, wall, done = 0;

		windowNs = 1_500 * MS;
		meet();
		begun = System.nanoTime();
		meet();
		meet();
		meet();
		settle();
		windowNs = window;
		System.gc();
		cpu = cpu();
		begun = System.nanoTime();
		meet();
		meet();
		wall = System.nanoTime() - begun;
		settle();
		cpu = cpu() - cpu;
		meet();
		for (Caller caller : callers) {
			caller.join();
			done += caller.done;
			must(caller.refused == 0 && RAN.get() == 0,
			    "keeping what was not due from running");
		}
		print("cpu_ns", "ns", (double)cpu / done);
		print("wall_ns", "ns", (double)wall / done);
	}

	private static void about() {
		System.out.println("compiler javac and " +
		    System.getProperty("java.vm.name") + " " +
		    System.getProperty("java.vm.version"));
		System.out.println("flags " + String.join(" ",
		    ManagementFactory.getRuntimeMXBean().getInputArguments()));
		System.out.println("version Netty " + Version.identify()
		    .get("netty-common").artifactVersion());
		System.exit(0);
	}

	public static void main(String[] arguments) throws Exception {
		if (arguments[0].equals("about"))
			about();
		for (int i = 1; i < arguments.length; i++)
			OPTIONS.put(arguments[i].split("=")[0],
			    arguments[i].split("=")[1]);
		threads = (int)option("threads", 1);
		outstanding = (int)option("outstanding", 1024);
		tickMs = option("tick_ms", 100);
		option("seed", 1);
		long seconds = option("seconds", 1);
		if (!OPTIONS.isEmpty() || !arguments[0].equals("pair")) {
			System.err.println("not with " + OPTIONS.keySet());
			System.exit(77);
		}
		timer = new HashedWheelTimer(work -> {
			Thread thread = new Thread(work, "wheel");

			thread.setDaemon(true);
			return thread;
		}, tickMs, TimeUnit.MILLISECONDS, 512, false);
		timer.start();
		barrier = new CyclicBarrier(threads + 1);
		Caller[] callers = new Caller[threads];

		for (int i = 0; i < threads; i++) {
			callers[i] = new Caller(i);
			callers[i].start();
		}
		sleepUntil(System.nanoTime() + 200 * MS);
		for (int i = 0; i < threads; i++)
			pin(callers[i], i);
		measure(callers, seconds * 1000 * MS);
		timer.stop();
	}
}
