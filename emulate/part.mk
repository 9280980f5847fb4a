# `emulate` and its tests. They need llama.cpp, as all of recorder/ does: see recorder/part.mk.
LLAMA_DEPS ?= build/deps

ifneq ($(LLAMA),no)
include $(wildcard $(LLAMA_DEPS)/llama/llama.mk)
endif

ifdef LLAMA_LIBS

EMULATE_OBJECTS := $(call object,$(filter-out emulate/main.c,$(wildcard emulate/*.c)))
EMULATE_TESTS   := $(patsubst tests/llama/%.c,$(BUILD)/tests/llama/%,$(wildcard tests/llama/test_emulate*.c))
EMULATE_SUPPORT := $(call object,$(wildcard tests/llama/emulate_support.c))

BINARIES += $(BUILD)/bin/emulate
all: $(BUILD)/bin/emulate
$(BUILD)/bin/emulate: $(BUILD)/obj/emulate/main.o $(EMULATE_OBJECTS) \
		$(call object,$(filter-out recorder/main.c,$(wildcard recorder/*.c))) $(LIBRARY)
	$(link) $(LLAMA_LIBS) -lpthread $(LDLIBS)

# Linked by recorder/part.mk as all tests in tests/llama are; this is what they need besides.
$(EMULATE_TESTS): $(EMULATE_OBJECTS) $(EMULATE_SUPPORT)
$(call object,$(wildcard tests/llama/*emulate_exact.c)): CPPFLAGS += $(LLAMA_CPPFLAGS)

# All rows of the reference emulator: three of them are compared in every test run.
soak: soak-emulate
soak-emulate: $(BUILD)/tests/llama/test_emulate_reference
	GM_SOAK=1 $<
.PHONY: soak-emulate

endif
