/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.nio.file.Path;
import java.util.Arrays;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What happens when everything is due at once, as when the network breaks? See
 * perf/burst.c, whose options these are. A tick begins when the one before ends
 * at its boundary: all deadlines are just before one.
 */
final class Burst extends Netty {
	private static final int RING = 1024;
	/** Phases: before, quiet, burst, and the end. */
	private static final int BEGIN = 0, QUIET = 1, BURST = 2, END = 3;
	private static final long BEFORE_BOUNDARY = 250_000;

	private static HashedWheelTimer timer;
	private static int count;
	private static long tickMs, taskNs, origin, due;
	private static volatile int phase;
	private static final AtomicLong strays = new AtomicLong();
	private static final TimerTask STRAY =
	    (Timeout timeout) -> strays.incrementAndGet();
	/** Of the worker alone, until all have started. */
	private static long first, last;
	private static volatile int started;

	private static void start(Timeout timeout) {
		int number = started + 1;

		if (number == 1)
			first = now();
		if (number == count)
			last = now();
		started = number;
		if (taskNs == 0)
			return;
		long end = now() + taskNs;

		while (now() < end)
			continue;
	}

	private static Timeout away() {
		return timer.newTimeout(STRAY, 1, TimeUnit.HOURS);
	}

	/** A thread that schedules one and cancels the oldest. */
	private static final class Bystander extends Thread {
		private final Timeout[] ring = new Timeout[RING];
		final Histogram[] calls = {new Histogram(), new Histogram(),
		    new Histogram(), new Histogram()};
		private boolean well = true;
		Path task;

		Bystander() {
			super("bystander");
			for (Histogram each : calls)
				each.clear();
			start();
			task = task(getName());
		}

		/** A pair counts for the burst if any of it was in it. */
		private int pair(int at, int before) {
			long from = now();

			well &= ring[at].cancel();
			ring[at] = away();
			long to = now();
			int after = phase;
			int in = before == BURST || after == END ? BURST
								 : after;

			calls[in].add(Math.max(0, to - from - clockCost()));
			return after;
		}

		@Override
		public void run() {
			int now = BEGIN;

			for (int i = 0; i < RING; i++)
				ring[i] = away();
			for (int at = 0; now != END; at = (at + 1) % RING)
				now = pair(at, now);
			for (Timeout timeout : ring)
				well &= timeout.cancel();
			must(well, "a bystander's cancel failed");
		}
	}

	/** A boundary of ticks at that time or after it, less a little. */
	private static long beforeBoundary(long time) {
		long tick = tickMs * MS;

		return origin + (time - origin + tick) / tick * tick -
		    BEFORE_BOUNDARY;
	}

	private static void fill() {
		TimerTask task = Burst::start;

		for (int i = 0; i < count; i++) {
			long now = now();
			Timeout timeout = timer.newTimeout(
			    task, due - now, TimeUnit.NANOSECONDS);

			must(now < due, "lead_ms is too short");
			if (now() - now > BEFORE_BOUNDARY / 2) {
				must(timeout.cancel(), "a cancel failed");
				i--;
			}
		}
	}

	private static void awaitLast() {
		long end = Math.max(due, now()) + PATIENCE;

		while (started < count && now() < end)
			sleepUntil(now() + MS / 2);
	}

	/** The compiler has seen everything after this. */
	private static void warmUp() {
		int wanted = count;

		count = 20_000;
		for (int i = 0; i < 10; i++) {
			started = 0;
			due = beforeBoundary(now() + 200 * MS);
			fill();
			awaitLast();
			must(started == count, "warming up: lost");
		}
		new Window().end();
		for (int i = 0; i < 200_000; i++)
			must(away().cancel(), "a cancel failed");
		settle(timer, tickMs);
		count = wanted;
		started = 0;
	}

	/** Leaves a heap in which those that live lie apart. */
	private static Timeout[] age(long seed) {
		Timeout[] aged = new Timeout[2 * count];
		Random lot = new Random(seed);

		for (int i = 0; i < aged.length; i++)
			aged[i] = away();
		for (int i = aged.length; i > 1; i--) {
			int at = lot.below(i);
			Timeout kept = aged[at];

			aged[at] = aged[i - 1];
			aged[i - 1] = kept;
		}
		settle(timer, tickMs);
		for (int i = count; i < aged.length; i++)
			aged[i].cancel();
		settle(timer, tickMs);
		return Arrays.copyOf(aged, count);
	}

	/** No one: nothing. */
	private static long cpu(Bystander thread) {
		refreshCpu();
		return thread == null ? 0 : threadCpu(thread.task);
	}

	private static void measure(Timeout[] aged) {
		Bystander bystander = option("bystander", 1) != 0
		    ? new Bystander() : null;

		fill();
		for (Timeout timeout : aged)
			timeout.cancel();
		/* The bystander may be ahead of the worker for good. */
		sleepUntil(now() + 2 * tickMs * MS);
		must(now() + 200 * MS < due, "lead_ms is too short");
		phase = QUIET;
		sleepUntil(due - MS);
		phase = BURST;
		/* The bystander first, both times: what it takes from there to
		 * the other reading is the same. */
		long other = cpu(bystander);
		Window window = new Window();

		awaitLast();
		other = cpu(bystander) - other;
		window.end();
		phase = END;
		if (bystander != null)
			await(bystander);
		sleepUntil(now() + 2 * tickMs * MS);
		report(window.cpu - other, bystander);
	}

	private static void report(long cpu, Bystander bystander) {
		int early = started > 0 && first < due ? 1 : 0;

		if (started >= count) {
			print("cpu_ns", "ns", (double)cpu / count);
			print("first_start_ms", "ms", (first - due) / 1e6);
			print("last_start_ms", "ms", (last - due) / 1e6);
		}
		if (bystander != null) {
			bystander.calls[BURST].printCalls("by");
			bystander.calls[QUIET].printCalls("quiet");
		}
		print("early", "count", early);
		print("lost", "count", Math.max(0, count - started));
		print("strays", "count",
		    strays.get() + Math.max(0, started - count));
	}

	public static void main(String[] arguments) {
		begin(arguments);
		count = (int)option("count", 100_000);
		tickMs = option("tick_ms", 100);
		if (!option("via", "inline").equals("inline"))
			cannot("it has no pool or mailbox");
		must(count > 0 && tickMs > 0, "options");
		timer = create(tickMs, 512);
		origin = now();
		warmUp();
		taskNs = option("task_us", 0) * 1000;
		Timeout[] aged = option("aged", 1) == 0
		    ? new Timeout[0] : age(option("seed", 1));

		System.gc();
		due = beforeBoundary(now() + MS *
		    option("lead_ms", 2000 + count / 1000));
		measure(aged);
		timer.stop();
	}
}
