# gatemass: everything builds into build/; `make help` lists the targets.

BUILD    ?= build
CC       ?= cc
CFLAGS   ?= -O2 -g
WARNINGS := -Wall -Wextra -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Werror
CPPFLAGS += -I. -D_GNU_SOURCE
ALL_CFLAGS = -std=c11 $(WARNINGS) $(CFLAGS)
LDLIBS   := -lzstd -lcjson -lxxhash -lm -ldl

PROGRAMS := traces sim report
MODULES  := base traces policies sim report

LIB_SOURCES := $(filter-out %/main.c,$(foreach m,$(MODULES),$(wildcard $(m)/*.c)))
LIB_OBJECTS := $(LIB_SOURCES:%.c=$(BUILD)/obj/%.o)
LIBRARY     := $(BUILD)/libgatemass.a
BINARIES    := $(foreach p,$(PROGRAMS),$(if $(wildcard $(p)/main.c),$(BUILD)/bin/$(p)))

TEST_SUPPORT := $(wildcard tests/support/*.c) tests/reference/reference.c
TEST_SOURCES := $(wildcard tests/unit/test_*.c) $(wildcard tests/reference/test_*.c) $(wildcard tests/cli/test_*.c)
TEST_OBJECTS := $(TEST_SUPPORT:%.c=$(BUILD)/obj/%.o)
TESTS        := $(patsubst %.c,$(BUILD)/tests/%,$(notdir $(TEST_SOURCES)))

.DEFAULT_GOAL := all
.PHONY: all clean test-programs

all: $(BINARIES)

$(BUILD)/obj/%.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

$(LIBRARY): $(LIB_OBJECTS)
	@rm -f $@
	ar rcs $@ $^

$(BUILD)/bin/%: $(BUILD)/obj/%/main.o $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ $(LDLIBS)

vpath test_%.c tests/unit tests/reference tests/cli
$(BUILD)/obj/tests/%.o: tests/%.c
$(TESTS): $(BUILD)/tests/%: $(BUILD)/obj/tests/%.test.o $(TEST_OBJECTS) $(LIBRARY)
	@mkdir -p $(@D)
	$(CC) $(ALL_CFLAGS) $(LDFLAGS) -o $@ $^ -lcmocka $(LDLIBS)
$(BUILD)/obj/tests/%.test.o: %.c
	@mkdir -p $(@D)
	$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

test-programs: $(TESTS) $(BINARIES)

clean:
	rm -rf $(BUILD)

-include $(shell [ -d $(BUILD)/obj ] && find $(BUILD)/obj -name '*.d')
