/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import io.netty.util.Version;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.nio.file.DirectoryStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;

/**
 * What the programs share that put Netty's HashedWheelTimer beside hwt: the
 * timer with the thread that it works in, and what threads take.
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
class Netty extends Common {
	/** One call in so many is timed. */
	static final int SAMPLE_EVERY = 64;
	/** What has not started so long after its time is lost. */
	static final long PATIENCE = 30 * SECOND;
	private static final Path TASKS = Paths.get("/proc/self/task");

	static void begin(String[] arguments) {
		Version netty = Version.identify().get("netty-common");

		begin(arguments, "Netty " + (netty == null
		    ? "of unknown version" : netty.artifactVersion()));
	}

	static boolean flag(String name) {
		return option(name, 0) != 0;
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

	/** Empty: the thread is gone. */
	private static String read(Path task, String name) {
		try {
			return Files.readString(task.resolve(name));
		} catch (IOException trouble) {
			return "";
		}
	}

	/** The first figure of schedstat; 0: the thread is gone. */
	static long threadCpu(Path task) {
		String text = read(task, "schedstat");

		return text.isEmpty() ? 0 : Long.parseLong(text.split(" ")[0]);
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
				if (read(task, "comm").trim().equals(name))
					return task;
			return null;
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

	/** Binds a thread to a processor, where there are enough for count, as
	 * the programs in C do. Where that cannot be done, the kernel's choice
	 * must do. */
	static void pin(Thread thread, int processor, int count) {
		if (count > Runtime.getRuntime().availableProcessors())
			return;
		try {
			new ProcessBuilder("taskset", "-cp",
			    Integer.toString(processor),
			    task(thread.getName()).getFileName().toString())
			    .redirectOutput(ProcessBuilder.Redirect.DISCARD)
			    .redirectError(ProcessBuilder.Redirect.DISCARD)
			    .start().waitFor();
		} catch (IOException | InterruptedException trouble) {
			return;
		}
	}

	static void meet(CyclicBarrier barrier) {
		try {
			barrier.await();
		} catch (InterruptedException |
		    BrokenBarrierException trouble) {
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
		CountDownLatch through = new CountDownLatch(1);
		TimerTask task = (Timeout timeout) -> through.countDown();

		timer.newTimeout(task, 0, TimeUnit.NANOSECONDS);
		try {
			must(through.await(600, TimeUnit.SECONDS),
			    "the worker does not keep up");
		} catch (InterruptedException trouble) {
			throw new IllegalStateException(trouble);
		}
		sleepUntil(until);
	}

	/**
	 * From its construction to its end: wall time, and the time on a
	 * processor of the whole process, collector and compiler included. That
	 * is the sum over threads, which is exact, or, where one ended
	 * meanwhile and took its share along, the process's own figure.
	 */
	static final class Window {
		private final long fine = threadsCpu();
		private final long coarse = processCpu();
		private final long begun = now();
		long wall, cpu;

		/** Wall time ends here; what the worker still owes is awaited
		 * before end. */
		void endWall() {
			wall = now() - begun;
		}

		void end() {
			cpu = threadsCpu() - fine;
			if (processCpu() - coarse > cpu + 50 * MS)
				cpu = processCpu() - coarse;
		}

		void tell(long operations) {
			print("cpu_ns", "ns", (double)cpu / operations);
			print("wall_ns", "ns", (double)wall / operations);
		}
	}
}
