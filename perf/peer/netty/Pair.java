/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.BrokenBarrierException;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;

/**
 * What does a pair cost, schedule one timeout and cancel the oldest, when
 * nothing, or with mixed delays almost nothing, is ever due? See perf/pair.c,
 * whose options these are.
 */
public final class Pair {
	private static final int SAMPLE_EVERY = 64;
	/** Pairs from one look at the clock to the next. */
	private static final int BATCH = 512;
	private static final int PROBE_EVERY_MS = 50, PROBE_DELAY_MS = 200;
	private static final long[] MIX = {50, 250, 1_000, 30_000};

	private static HashedWheelTimer timer;
	private static int producers, outstanding;
	private static long tickMs, delayMs, pairs, pace;
	private static double seconds;
	private static boolean mixed, random, handoff, warm;
	private static CyclicBarrier barrier;
	private static long begun;
	private static final AtomicLong ran = new AtomicLong();

	/** All timeouts share a task: Netty at its best. */
	private static final TimerTask TASK =
	    (Timeout timeout) -> ran.incrementAndGet();

	private Pair() {
	}

	private static void meet() {
		try {
			barrier.await();
		} catch (InterruptedException |
		    BrokenBarrierException trouble) {
			throw new IllegalStateException(trouble);
		}
	}

	/**
	 * Handles on their way from one thread to another: one writes blocks,
	 * the other reads them. An empty block ends it.
	 */
	private static final class Ring {
		static final int BLOCK = 256, BLOCKS = 4;
		final Timeout[][] block = new Timeout[BLOCKS][BLOCK];
		final int[] count = new int[BLOCKS];
		final Semaphore empty = new Semaphore(BLOCKS);
		final Semaphore full = new Semaphore(0);
		int written, read;
	}

	/** A thread that makes calls: both of a pair, or one of them. */
	private abstract static class Caller extends Thread {
		final Timeout[] table = new Timeout[outstanding];
		final Common.Histogram times = new Common.Histogram();
		final Common.Random lot;
		private int place;
		long calls, refused;

		Caller(int number) {
			super("caller-" + number);
			lot = new Common.Random(
			    Common.option("seed", 1) * 1_000_003 + number);
		}

		/** Until the end of the window. */
		abstract void work();

		abstract void fill();

		final long delay() {
			return mixed ? MIX[(int)(lot.next() >>> 62)] : delayMs;
		}

		final int next() {
			if (random)
				return lot.below(outstanding);
			int now = place;

			place = now + 1 == outstanding ? 0 : now + 1;
			return now;
		}

		final Timeout schedule() {
			return timer.newTimeout(
			    TASK, delay(), TimeUnit.MILLISECONDS);
		}

		final void replace(Timeout by) {
			int at = next();

			if (!table[at].cancel())
				refused++;
			table[at] = by != null ? by : schedule();
		}

		final boolean isSampled() {
			return calls++ % SAMPLE_EVERY == 0;
		}

		private int behindPace(long now) {
			long step = (now - begun) / Common.MS + 1;
			long target = step * pace / (1000 * producers);

			if (target > calls)
				return (int)Math.min(BATCH, target - calls);
			Common.sleepUntil(begun + step * Common.MS);
			return 0;
		}

		/** How many pairs come next; 0: the end. */
		final int nextBatch() {
			int batch = 0;

			while (batch == 0) {
				long now = Common.now();

				if (now - begun >= seconds * 1e9)
					return 0;
				batch = pace > 0 ? behindPace(now) : BATCH;
			}
			if (pairs > 0 && warm)
				return (int)Math.min(batch, pairs - calls);
			return batch;
		}

		@Override
		public final void run() {
			fill();
			for (int i = 0; i < 2; i++) {
				meet();
				calls = 0;
				times.clear();
				meet();
				work();
				meet();
			}
			meet();
			endAll();
		}

		void endAll() {
			for (Timeout timeout : table)
				if (!timeout.cancel())
					refused++;
		}
	}

	/** Makes pairs. */
	private static final class Producer extends Caller {
		Producer(int number) {
			super(number);
		}

		@Override
		void fill() {
			for (int i = 0; i < outstanding; i++)
				table[i] = schedule();
		}

		private void makePairs(int count) {
			for (; count > 0; count--) {
				if (!isSampled()) {
					replace(null);
					continue;
				}
				long from = Common.now();

				replace(null);
				times.addCall(from);
			}
		}

		@Override
		void work() {
			int batch;

			while ((batch = nextBatch()) > 0)
				makePairs(batch);
		}
	}

	/** Schedules, and sends the handles to a canceller. */
	private static final class Scheduler extends Caller {
		private final Ring ring;

		Scheduler(int number, Ring ring) {
			super(number);
			this.ring = ring;
		}

		private void sendBlock(int count) {
			int number = ring.written++ % Ring.BLOCKS;
			Timeout[] block = ring.block[number];

			ring.empty.acquireUninterruptibly();
			for (int i = 0; i < count; i++) {
				if (!isSampled()) {
					block[i] = schedule();
					continue;
				}
				long from = Common.now();

				block[i] = schedule();
				times.addCall(from);
			}
			ring.count[number] = count;
			ring.full.release();
		}

		private void send(int count) {
			for (; count > 0; count -= Ring.BLOCK)
				sendBlock(Math.min(count, Ring.BLOCK));
		}

		@Override
		void fill() {
			send(outstanding);
		}

		@Override
		void work() {
			int batch;

			while ((batch = nextBatch()) > 0)
				send(batch);
			sendBlock(0);
		}

		@Override
		void endAll() {
		}
	}

	/** Cancels what a scheduler has sent, that of long ago. */
	private static final class Canceller extends Caller {
		private final Ring ring;

		Canceller(int number, Ring ring) {
			super(number);
			this.ring = ring;
		}

		private int receive() {
			ring.full.acquireUninterruptibly();
			return ring.count[ring.read % Ring.BLOCKS];
		}

		private Timeout[] block() {
			return ring.block[ring.read % Ring.BLOCKS];
		}

		private void done() {
			ring.read++;
			ring.empty.release();
		}

		@Override
		void fill() {
			for (int i = 0; i < outstanding;) {
				int count = receive();

				System.arraycopy(block(), 0, table, i, count);
				i += count;
				done();
			}
		}

		private void cancelBlock(Timeout[] block, int count) {
			for (int i = 0; i < count; i++) {
				if (!isSampled()) {
					replace(block[i]);
					continue;
				}
				long from = Common.now();

				replace(block[i]);
				times.addCall(from);
			}
		}

		@Override
		void work() {
			int count;

			while ((count = receive()) > 0) {
				cancelBlock(block(), count);
				done();
			}
			done();
		}
	}

	/** So many that the last is due before the producers end. */
	private static int probeCount() {
		double ms = seconds * 1e3 - PROBE_DELAY_MS - 2 * tickMs;

		if (Common.option("probe", 0) == 0)
			return 0;
		Common.must(ms >= PROBE_EVERY_MS && pairs == 0,
		    "finding time for a probe failed");
		return (int)(ms / PROBE_EVERY_MS);
	}

	private static void runProbes(int count, Common.Histogram late) {
		for (int i = 0; i < count; i++) {
			long due = Common.now() + PROBE_DELAY_MS * Common.MS;

			timer.newTimeout(timeout
			    -> late.add(Common.now() - due),
			    PROBE_DELAY_MS, TimeUnit.MILLISECONDS);
			Common.sleepUntil(begun +
			    PROBE_EVERY_MS * Common.MS * (i + 1));
		}
	}

	private static void tellProbes(
	    int count, Common.Histogram late, long lagMax) {
		double beyond = late.max() - 2 * tickMs * 1e6 - lagMax;

		late.printLate();
		Common.print("lag_max_ms", "ms", lagMax / 1e6);
		Common.print("late_beyond_ms", "ms", beyond / 1e6);
		Common.print("early", "count", late.early());
		Common.print("lost", "count",
		    count - late.count() - late.early());
	}

	private static void readOptions() {
		producers = (int)Common.option("producers", 1);
		outstanding = (int)Common.option("outstanding", 1024);
		tickMs = Common.option("tick_ms", 100);
		delayMs = Common.option("delay_ms", 30_000);
		pairs = Common.option("pairs", 0);
		mixed = Common.option("mix", 0) != 0;
		random = Common.option("random", 0) != 0;
		handoff = Common.option("handoff", 0) != 0;
		Common.must(producers > 0 && outstanding > 0 && tickMs > 0,
		    "options");
	}

	private static List<Caller> callers() {
		List<Caller> callers = new ArrayList<>();

		for (int i = 0; i < producers; i++) {
			if (!handoff) {
				callers.add(new Producer(i));
				continue;
			}
			Ring ring = new Ring();

			callers.add(new Scheduler(2 * i, ring));
			callers.add(new Canceller(2 * i + 1, ring));
		}
		barrier = new CyclicBarrier(callers.size() + 1);
		return callers;
	}

	private static void start(List<Caller> callers) {
		int processors = Runtime.getRuntime().availableProcessors();

		for (Caller caller : callers)
			caller.start();
		for (int i = 0; i < callers.size(); i++)
			if (callers.size() <= processors)
				Common.pin(callers.get(i).getName(), i);
	}

	/** The same as will be measured, at a pace with which the worker keeps
	 * up. */
	private static void warmUp() {
		pace = 1_000_000;
		seconds = Double.parseDouble(Common.option("warmup", "1.5"));
		meet();
		begun = Common.now();
		meet();
		meet();
		meet();
		Common.settle(timer, tickMs);
		seconds = Double.parseDouble(Common.option("seconds", "1"));
		pace = Common.option("pace", 0);
		warm = true;
		System.gc();
	}

	/** From the first pair to the end of the last one's consequences. */
	private static Common.Window measure(Common.Histogram late) {
		int probes = probeCount();
		Common.Control control =
		    probes > 0 ? new Common.Control() : null;
		Common.Window window = new Common.Window();
		long controlCpu = control == null ? 0 : control.cpu();

		begun = Common.now();
		meet();
		runProbes(probes, late);
		meet();
		window.endWall();
		Common.settle(timer, tickMs);
		window.end();
		if (control == null)
			return window;
		window.cpu -= control.cpu() - controlCpu;
		tellProbes(probes, late, control.end());
		return window;
	}

	/** A cancel fails when the task has been started, and only then. */
	private static void judgeOutcomes(long refused) {
		Common.settle(timer, tickMs);
		Common.must(mixed || ran.get() == 0,
		    "what was not due has run");
		Common.must(refused == ran.get(), refused +
		    " cancels failed, " + ran.get() + " timeouts have run");
	}

	public static void main(String[] arguments)
	    throws InterruptedException {
		Common.begin(arguments);
		readOptions();
		timer = Common.create(tickMs, 512);
		List<Caller> callers = callers();

		start(callers);
		warmUp();
		Common.Window window = measure(new Common.Histogram());
		double rss = Common.rssMib();
		Common.Histogram times = new Common.Histogram();
		long done = 0, refused = 0;

		meet();
		for (Caller caller : callers) {
			caller.join();
			times.addAll(caller.times);
			refused += caller.refused;
			if (!(caller instanceof Canceller))
				done += caller.calls;
		}
		judgeOutcomes(refused);
		window.print(done);
		times.printCalls("call");
		Common.print("rss_mib", "MiB", rss);
		Common.print("pairs_per_s", "1/s", done * 1e9 / window.wall);
		Common.print("ran", "count", ran.get());
		Common.print("collections", "count", window.collections);
		timer.stop();
	}
}
