# SPDX-License-Identifier: Apache-2.0
#
# The module beside what people would take instead, and a billion tasks a day;
# read by ../rules.mk. What is compared with is built if it can be.

durable_perf_of = $(1:%=build/plain/modules/durable/perf/%)
durable_loads := load-hwt load-sorted_sets \
	$(if $(wildcard /usr/include/postgresql/libpq-fe.h),load-postgresql)
durable_hosted := build/plain/hwtd build/plain/hwt.so
durable_load_libs_load-hwt := -lhiredis
durable_load_libs_load-sorted_sets := -lhiredis
durable_load_libs_load-postgresql := -lpq
build/plain/modules/durable/perf/postgresql.o: \
	own = -isystem /usr/include/postgresql
$(call durable_perf_of,load-hwt load-sorted_sets): \
		build/plain/modules/durable/perf/resp.o
$(call durable_perf_of,$(durable_loads)): \
		build/plain/modules/durable/perf/load-%: \
		build/plain/modules/durable/perf/load.o \
		build/plain/modules/durable/perf/%.o
	$(call say,LD)
	$(Q)$(link) -o $@ $^ $(durable_load_libs_$(@F)) -lm $(libs)

# The engines of Node, from its registry.
durable_node := $(if $(shell command -v npm), \
	$(call durable_perf_of,node_modules/.package-lock.json))
$(durable_node):
	$(call say,NPM)
	$(Q)npm install --silent --no-save --prefix $(dir $(@D)) \
		bullmq@6.7.0 ioredis@6.0.0 graphile-worker@0.17.3

.PHONY: perf-durable
perf-durable: $(call durable_perf_of,$(durable_loads)) $(durable_hosted) \
		$(durable_node)
	$(Q)python3 -B modules/durable/perf/main.py $(PERF)

# HOURS may be a fraction.
.PHONY: billion
billion: $(call durable_perf_of,load-hwt) $(durable_hosted)
	$(Q)python3 -B modules/durable/perf/billion.py \
		$(if $(HOURS),--hours $(HOURS)) $(BILLION)
