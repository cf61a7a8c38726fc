/* SPDX-License-Identifier: Apache-2.0 */
import io.netty.util.HashedWheelTimer;
import io.netty.util.Timeout;
import io.netty.util.TimerTask;
import java.util.concurrent.CyclicBarrier;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReferenceArray;

/**
 * What does it cost to push out the idle limit of a connection, one at random
 * of so many? Netty has no call for it, so that one cancels and makes another.
 * See perf/touch.c, whose options these are. The window ends when the worker
 * has taken over what was scheduled in it, at most 100,000 in a tick.
 */
final class Touch extends Netty {
	private static final int SILENT_OF = 100, BATCH = 1024;
	private static final long STRIDE_PRIME = 1_000_000_007;

	private static HashedWheelTimer timer;
	private static int connections, live, threads;
	private static long limitMs, tickMs, filled;
	/** A thread takes a handle out while it touches the connection. */
	private static AtomicReferenceArray<Timeout> handles;
	private static CyclicBarrier barrier;
	private static final AtomicLong strays = new AtomicLong();
	private static final Histogram late = new Histogram();
	private static volatile long fired;

	private static final TimerTask ALIVE =
	    (Timeout timeout) -> strays.incrementAndGet();

	/** Of the worker alone. */
	private static void tell(long due) {
		late.add(now() - due);
		fired = late.count() + late.early();
	}

	private static Timeout schedule(TimerTask task) {
		return timer.newTimeout(task, limitMs, TimeUnit.MILLISECONDS);
	}

	/** The last ones of the table are silent. */
	private static void fill() {
		filled = now();
		for (long i = 0; i < connections; i++) {
			int place = (int)(i * STRIDE_PRIME % connections);
			long due = now() + limitMs * MS;

			handles.setPlain(place, schedule(place < live
				? ALIVE : timeout -> tell(due)));
		}
	}

	private static void touch(int place) {
		Timeout timeout;

		if (threads > 1)
			timeout = handles.getAndSet(place, null);
		else
			timeout = handles.getPlain(place);
		if (timeout == null)
			return;
		must(timeout.cancel(), "a cancel failed");
		timeout = schedule(ALIVE);
		if (threads > 1)
			handles.setRelease(place, timeout);
		else
			handles.setPlain(place, timeout);
	}

	private static final class Toucher extends Thread {
		private final Random lot;
		private final long[] touches, until;
		long done;

		/** As many in each of two windows, of which the second is
		 * timed. */
		Toucher(int number, long[] touches, long[] until) {
			super("toucher-" + number);
			lot = new Random(option("seed", 1) * 1000 + number);
			this.touches = touches;
			this.until = until;
		}

		private void batch() {
			for (int i = 0; i < BATCH; i++)
				touch(lot.below(live));
		}

		private void window(int number) {
			for (done = 0; done < touches[number] &&
			     now() < until[number]; done += BATCH)
				batch();
		}

		@Override
		public void run() {
			for (int i = 0; i < 2; i++) {
				meet(barrier);
				window(i);
				meet(barrier);
				meet(barrier);
			}
		}
	}

	private static Toucher[] start(long touches) {
		long eighth = limitMs * MS / 8;
		long[] counts = {touches / 4, touches};
		long[] until = {filled + eighth, filled + 3 * eighth};
		Toucher[] touchers = new Toucher[threads];

		barrier = new CyclicBarrier(threads + 1);
		for (int i = 0; i < threads; i++) {
			touchers[i] = new Toucher(i, counts, until);
			touchers[i].start();
			if (threads > 1)
				pin(touchers[i], i, threads);
		}
		return touchers;
	}

	private static void measure() {
		Toucher[] touchers = start(option("touches", 4_000_000));

		for (int i = 0; i < 2; i++) {
			long done = 0;

			settle(timer, tickMs);
			Window window = new Window();

			meet(barrier);
			meet(barrier);
			window.endWall();
			settle(timer, tickMs);
			window.end();
			for (Toucher toucher : touchers)
				done += toucher.done;
			meet(barrier);
			must(done > 0, "limit_ms is too short");
			if (i == 1)
				window.tell(done);
		}
		for (Toucher toucher : touchers)
			await(toucher);
	}

	private static void sweep() {
		for (int place = 0; place < live; place++)
			touch(place);
	}

	/** Touches the live ones in time until the silent ones have been told
	 * of, or should have been for long. */
	private static void keepAlive() {
		long silent = connections - live, limit = limitMs * MS;
		long begun = now(), touched = filled;
		long end = begun + limit + 2 * tickMs * MS + PATIENCE;

		do {
			sweep();
			must(now() - touched < limit,
			    "limit_ms is too short to touch all in time");
			touched = begun;
			begun += limit / 4;
			sleepUntil(begun);
		} while (fired < silent && begun < end);
	}

	private static void reportSilent() {
		long lost = connections - live - fired;

		late.printLate();
		print("early", "count", late.early());
		print("lost", "count", lost);
	}

	public static void main(String[] arguments) {
		begin(arguments);
		connections = (int)option("connections", 100_000);
		limitMs = option("limit_ms", 60_000);
		tickMs = option("tick_ms", 100);
		threads = (int)option("threads", 1);
		must(connections >= SILENT_OF && threads > 0 &&
		    connections < STRIDE_PRIME, "options");
		live = connections - connections / SILENT_OF;
		handles = new AtomicReferenceArray<>(connections);
		timer = create(tickMs, 512);
		fill();
		settle(timer, tickMs);
		measure();
		if (option("fire", 1) != 0) {
			keepAlive();
			reportSilent();
		}
		print("strays", "count", strays.get());
		timer.stop();
	}
}
