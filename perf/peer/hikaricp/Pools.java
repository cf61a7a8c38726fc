/* SPDX-License-Identifier: Apache-2.0 */
import com.zaxxer.hikari.HikariConfig;
import com.zaxxer.hikari.HikariDataSource;
import java.io.PrintWriter;
import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.Proxy;
import java.sql.Connection;
import java.sql.SQLFeatureNotSupportedException;
import java.util.HashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.locks.LockSupport;
import java.util.logging.Logger;
import javax.sql.DataSource;
import org.apache.commons.pool2.BasePooledObjectFactory;
import org.apache.commons.pool2.PooledObject;
import org.apache.commons.pool2.impl.DefaultPooledObject;
import org.apache.commons.pool2.impl.GenericObjectPool;
import org.apache.commons.pool2.impl.GenericObjectPoolConfig;

/**
 * What a turn costs in a pool of connections, and how long one waits for it:
 * see modules/checkout/perf/main.c, whose options these are, with any=1.
 *
 * HikariCP and commons-pool2 as they come, of fixed size, with connections that
 * do nothing; nothing is checked before use but what HikariCP does by itself.
 * Each thread has turns before it measures, without holds, until the compiler
 * has done its work. cpu_ns is that of the threads that take turns: collector
 * and compiler are left out, which is in favour of these pools.
 *
 * Who would call it unfair: who has them in a program in Java, as that cannot
 * use the others. HikariCP wraps each connection, and knows of transactions and
 * of statements that were left open; an object of commons-pool2 has a state and
 * times of its own. Debian's HikariCP 2.7.9 is of 2018.
 */
public final class Pools {
	private static final long SECOND = 1_000_000_000L, WARM = 2 * SECOND;
	private static final Map<String, Long> OPTIONS = new HashMap<>();
	private static Pool pool;
	private static volatile boolean over;

	private Pools() {
	}

	/** Takes one, holds it for so long, and returns it; answers when it
	 * was there. */
	private interface Pool {
		long turn(long holdNs) throws Exception;
	}

	private static void hold(long ns) {
		long until = System.nanoTime() + ns, left;

		while (ns > 0 && (left = until - System.nanoTime()) > 0)
			LockSupport.parkNanos(left);
	}

	private static Object answer(Object self, String method, Class<?> of) {
		switch (method) {
		case "equals":
			return false;
		case "hashCode":
			return System.identityHashCode(self);
		case "isValid":
		case "getAutoCommit":
			return true;
		}
		if (of == boolean.class)
			return false;
		return of == int.class ? (Object)0 : null;
	}

	private static Connection connection() {
		InvocationHandler handler = (self, method, arguments) ->
		    answer(self, method.getName(), method.getReturnType());

		return (Connection)Proxy.newProxyInstance(
		    Pools.class.getClassLoader(),
		    new Class<?>[] {Connection.class}, handler);
	}

	private static final class Source implements DataSource {
		@Override
		public Connection getConnection() {
			return connection();
		}

		@Override
		public Connection getConnection(String user, String word) {
			return connection();
		}

		@Override
		public PrintWriter getLogWriter() {
			return null;
		}

		@Override
		public void setLogWriter(PrintWriter writer) {
		}

		@Override
		public void setLoginTimeout(int seconds) {
		}

		@Override
		public int getLoginTimeout() {
			return 0;
		}

		@Override
		public Logger getParentLogger()
		    throws SQLFeatureNotSupportedException {
			throw new SQLFeatureNotSupportedException();
		}

		@Override
		public <T> T unwrap(Class<T> type) {
			return null;
		}

		@Override
		public boolean isWrapperFor(Class<?> type) {
			return false;
		}
	}

	/** It lives as long as the program. */
	@SuppressWarnings("resource")
	private static Pool hikari(int size) {
		HikariConfig config = new HikariConfig();

		config.setDataSource(new Source());
		config.setMaximumPoolSize(size);
		config.setConnectionTimeout(600_000);
		HikariDataSource source = new HikariDataSource(config);

		return holdNs -> {
			try (Connection taken = source.getConnection()) {
				long granted = System.nanoTime();

				hold(holdNs);
				return taken != null ? granted : 0;
			}
		};
	}

	private static final class Factory extends
	    BasePooledObjectFactory<Object> {
		@Override
		public Object create() {
			return new Object();
		}

		@Override
		public PooledObject<Object> wrap(Object made) {
			return new DefaultPooledObject<>(made);
		}
	}

	@SuppressWarnings("resource")
	private static Pool commons(int size, boolean fair) {
		GenericObjectPoolConfig<Object> config =
		    new GenericObjectPoolConfig<>();

		config.setMaxTotal(size);
		config.setMaxIdle(size);
		config.setFairness(fair);
		config.setJmxEnabled(false);
		GenericObjectPool<Object> objects =
		    new GenericObjectPool<>(new Factory(), config);

		return holdNs -> {
			Object taken = objects.borrowObject();
			long granted = System.nanoTime();

			hold(holdNs);
			objects.returnObject(taken);
			return granted;
		};
	}

	/** As Common.Histogram beside Netty. */
	private static final class Histogram {
		private static final int LOG = 6, PARTS = 1 << LOG;
		private final long[] cell = new long[(64 - LOG) * PARTS];
		private long count, max;

		void add(long ns) {
			int log = 0, at = (int)ns;

			if (ns >= PARTS) {
				log = 63 - Long.numberOfLeadingZeros(ns) - LOG;
				at = (log << LOG) + (int)(ns >> log);
			}
			cell[at]++;
			count++;
			max = Math.max(max, ns);
		}

		void addAll(Histogram other) {
			for (int i = 0; i < cell.length; i++)
				cell[i] += other.cell[i];
			count += other.count;
			max = Math.max(max, other.max);
		}

		private static long upper(int at) {
			int log = (at >> LOG) - 1;

			if (at < 2 * PARTS)
				return at;
			return ((long)at - (log << LOG) + 1 << log) - 1;
		}

		/* share: of 10,000. */
		long quantile(int share) {
			long rank = (count * share + 9999) / 10000, seen = 0;

			for (int at = 0; at < cell.length; at++) {
				seen += cell[at];
				if (seen >= rank && seen > 0)
					return Math.min(upper(at), max);
			}
			return max;
		}
	}

	private static final class Worker extends Thread {
		private long random;
		private final Histogram waits = new Histogram();
		private long turns, cpu;

		Worker(int number) {
			random = option("seed", 1) + number;
		}

		/** SplitMix64. */
		private boolean isTail() {
			long x = random += 0x9e3779b97f4a7c15L;

			x = (x ^ x >>> 30) * 0xbf58476d1ce4e5b9L;
			x = (x ^ x >>> 27) * 0x94d049bb133111ebL;
			return Long.remainderUnsigned(x ^ x >>> 31, 100) == 0;
		}

		private void turns(long sleep, long tail) throws Exception {
			while (!over) {
				long ns = tail > 0 && isTail() ? tail : sleep;
				long begun = System.nanoTime();
				long granted = pool.turn(ns);

				waits.add(Math.max(0, granted - begun));
				turns++;
			}
		}

		@Override
		public void run() {
			ThreadMXBean bean =
			    ManagementFactory.getThreadMXBean();

			try {
				turns(option("sleep_ns", 0),
				    option("tail_ns", 0));
			} catch (Exception trouble) {
				trouble.printStackTrace();
				Runtime.getRuntime().halt(2);
			}
			cpu = bean.getCurrentThreadCpuTime();
		}
	}

	private static void warm() throws Exception {
		long end = System.nanoTime() + WARM;
		Thread[] threads = new Thread[(int)option("threads", 2)];

		for (int i = 0; i < threads.length; i++) {
			Worker worker = new Worker(i);

			threads[i] = new Thread(() -> {
				try {
					worker.turns(0, 0);
				} catch (Exception trouble) {
					Runtime.getRuntime().halt(2);
				}
			});
			threads[i].start();
		}
		Thread.sleep((end - System.nanoTime()) / 1_000_000);
		over = true;
		for (Thread each : threads)
			each.join();
		over = false;
		System.gc();
	}

	private static long option(String name, long otherwise) {
		return OPTIONS.getOrDefault(name, otherwise);
	}

	private static void print(String name, String unit, double value) {
		System.out.printf(
		    Locale.ROOT, "%s %s %.6g%n", name, unit, value);
	}

	private static void about(String name) {
		Class<?> of = name.equals("hikaricp")
		    ? HikariDataSource.class : GenericObjectPool.class;
		String jar = of.getProtectionDomain().getCodeSource()
		    .getLocation().getPath();

		System.out.println("compiler javac and C2 of " +
		    System.getProperty("java.vm.name") + " " +
		    System.getProperty("java.vm.version"));
		System.out.println("flags " + String.join(" ",
		    ManagementFactory.getRuntimeMXBean()
			.getInputArguments()));
		System.out.println("version " + name + " of " + jar);
	}

	private static void measure() throws InterruptedException {
		Worker[] workers = new Worker[(int)option("threads", 2)];
		Histogram waits = new Histogram();
		long begun = System.nanoTime(), turns = 0, cpu = 0;

		for (int i = 0; i < workers.length; i++) {
			workers[i] = new Worker(i);
			workers[i].start();
		}
		Thread.sleep(option("seconds", 1) * 1000);
		over = true;
		for (Worker each : workers) {
			each.join();
			turns += each.turns;
			cpu += each.cpu;
			waits.addAll(each.waits);
		}
		print("cpu_ns", "ns", (double)cpu / turns);
		print("ops_per_s", "/s",
		    turns * 1e9 / (System.nanoTime() - begun));
		print("wait_p50_ns", "ns", waits.quantile(5000));
		print("wait_p99_ns", "ns", waits.quantile(9900));
		print("wait_p9999_ns", "ns", waits.quantile(9999));
		print("wait_max_ns", "ns", waits.quantile(10000));
	}

	public static void main(String[] arguments) throws Exception {
		String name = arguments[0];

		if (arguments.length == 2 && arguments[1].equals("about")) {
			about(name);
			return;
		}
		for (int i = 1; i < arguments.length; i++) {
			String[] each = arguments[i].split("=", 2);

			OPTIONS.put(each[0], Long.parseLong(each[1]));
		}
		if (option("any", 0) == 0) {
			System.err.println(name + ": any=1 alone");
			System.exit(77);
		}
		int size = (int)option("objects", 256);

		pool = name.equals("hikaricp") ? hikari(size)
					       : commons(size,
						     name.equals("pool2_fair"));
		warm();
		measure();
		System.exit(0);
	}
}
