# SPDX-License-Identifier: Apache-2.0
#
# The module beside what people would take instead; read by ../rules.mk. What
# is compared with is built if it can be.

durable_perf_of = build/plain/modules/durable/perf/$1
durable_queues := hwt beanstalkd zset expiry \
	$(if $(wildcard /usr/include/postgresql/libpq-fe.h),postgresql)
durable_perf := $(durable_queues:%=$(call durable_perf_of,client-%))
durable_perf_hwt := build/plain/libhwt_durable.a build/plain/libhwt.a
durable_perf_libs_hwt := $(durable_libs)
durable_perf_libs_zset := -lhiredis
durable_perf_libs_expiry := -lhiredis
durable_perf_libs_postgresql := -lpq
build/plain/modules/durable/perf/postgresql.o: \
	own = -isystem /usr/include/postgresql
$(durable_perf): $(call durable_perf_of,client-%): \
		$(call durable_perf_of,client.o) $(call durable_perf_of,%.o) \
		$$(durable_perf_$$*)
	$(call say,LD)
	$(Q)$(link) -o $@ $(filter %.o,$^) $(filter %.a,$^) \
		$(durable_perf_libs_$*) $(libs)

durable_neighbour := $(call durable_perf_of,neighbour)
$(durable_neighbour): $(call durable_perf_of,neighbour.o) $(durable_perf_hwt)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

durable_http := $(call durable_perf_of,http)
$(durable_http): $(call durable_perf_of,http.o)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(libs)

.PHONY: perf-durable
perf-durable: $(durable_perf) $(durable_neighbour) $(durable_http) \
		$(durable_programs)
	$(Q)python3 -B modules/durable/perf/main.py $(PERF)

# HOURS and MINUTES may be fractions.
durable_billion := $(call durable_perf_of,billion)
$(durable_billion): $(call durable_perf_of,billion.o) $(durable_perf_hwt)
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_libs) $(libs)

.PHONY: billion
billion: $(durable_billion) $(durable_programs)
	$(Q)python3 -B modules/durable/perf/billion.py \
		$(if $(HOURS),--hours $(HOURS)) \
		$(if $(MINUTES),--minutes $(MINUTES)) $(BILLION)
