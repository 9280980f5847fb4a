# Capture on the device, probe-machine and their tests; recorder/part.mk includes this file. Nothing here needs CUDA but `make cuda`:
# the rest finds its runtime when it runs, or plays it (tests/fake_cuda).

CAPTURE_OBJECTS := $(call object,recorder/capture.c recorder/capture_runtime.c recorder/record_device.c)
PROBE_OBJECTS   := $(call object,$(filter-out recorder/probe/main.c,$(wildcard recorder/probe/*.c)) recorder/capture_runtime.c)
FAKE_SOURCES    := $(wildcard tests/fake_cuda/*.c)
FAKE_HEADERS    := $(wildcard tests/fake_cuda/*.h) recorder/capture_cuda.h
CUDA_TESTS      := $(patsubst tests/cuda/%.c,$(BUILD)/tests/%,$(wildcard tests/cuda/test_*.c))

BINARIES += $(BUILD)/bin/probe-machine
all: $(BUILD)/bin/probe-machine
test-programs: $(BUILD)/bin/probe-machine
$(BUILD)/bin/probe-machine: $(BUILD)/obj/recorder/probe/main.o $(PROBE_OBJECTS) $(LIBRARY)
	$(link) -lpthread $(LDLIBS)

$(CUDA_TESTS): LDLIBS += -lpthread
$(CUDA_TESTS): $(call object,tests/cuda/support.c $(FAKE_SOURCES)) $(CAPTURE_OBJECTS) $(PROBE_OBJECTS)
$(BUILD)/tests/test_probe: $(BUILD)/tests/libfakecudart.so $(BUILD)/bin/probe-machine

# llama.cpp on a GPU that is played too.
ifdef LLAMA_LIBS
$(call object,tests/llama/fake_gpu.c): CPPFLAGS += $(LLAMA_CPPFLAGS)
$(BUILD)/tests/llama/test_device: $(call object,tests/llama/fake_gpu.c) $(BUILD)/tests/libfakecudart.so
endif

# The stand-in as a library, for programs that look for the runtime: GATEMASS_CUDART=build/tests/libfakecudart.so
$(BUILD)/tests/libfakecudart.so: $(FAKE_SOURCES) $(FAKE_HEADERS)
	@mkdir -p $(@D) && echo "link $@"
	@$(CC) $(CPPFLAGS) $(ALL_CFLAGS) -fPIC -shared $(LDFLAGS) -o $@ $(FAKE_SOURCES) -lpthread

# Data races, which the other sanitizers do not see. (Its code makes gcc guess wrongly about lengths of text.)
check: check-capture-threads
check-capture-threads:
	@$(MAKE) --no-print-directory run-capture-tests BUILD=$(BUILD)/tsan LLAMA=no CFLAGS="-O1 -g -fsanitize=thread -Wno-format-truncation"
run-capture-tests: $(filter %_capture %_capture_errors %_record_device,$(CUDA_TESTS))
	@set -e; for t in $^; do $$t; done

.PHONY: cuda cuda-library-if-there check-gpu check-capture-threads run-capture-tests

# --- with NVIDIA's toolkit ---

NVCC       ?= $(firstword $(wildcard $(CUDA_HOME)/bin/nvcc) $(shell command -v nvcc 2>/dev/null) $(wildcard /usr/local/cuda/bin/nvcc))
CUDA_ROOT  := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
CUDA_ARCHS ?= 86 90
# Machine code for each, and for later GPUs what the driver compiles itself.
CUDA_GENCODE    = $(foreach a,$(CUDA_ARCHS),-gencode arch=compute_$(a),code=sm_$(a)) \
		  -gencode arch=compute_$(lastword $(CUDA_ARCHS)),code=compute_$(lastword $(CUDA_ARCHS))
CUDA_CPPFLAGS   = $(CPPFLAGS) -DGM_CUDA_HEADER $(if $(filter /usr,$(CUDA_ROOT)),,-isystem $(CUDA_ROOT)/include)
cuda_object     = $(patsubst %.c,$(BUILD)/cuda/obj/%.o,$(1))
CUDA_SOURCES   := recorder/capture.c recorder/record_device.c tests/cuda/support.c
CUDA_LIBS       = -L$(CUDA_ROOT)/lib64 -Xlinker -rpath -Xlinker $(CUDA_ROOT)/lib64

cuda: $(BUILD)/lib/libgatemass-cuda.so $(BUILD)/cuda/test_capture $(BUILD)/cuda/bench_capture $(BUILD)/cuda/cublas_router cuda-signatures ## compile what runs on NVIDIA GPUs (nvcc), for CUDA_ARCHS="86 90"

$(BUILD)/cuda/capture_cuda.o: recorder/capture_cuda.cu recorder/capture_cuda.h base/error.h
	@[ -n "$(NVCC)" ] || { echo "make cuda: no nvcc: install NVIDIA's CUDA toolkit, or name it: NVCC=.../bin/nvcc" >&2; exit 1; }
	@mkdir -p $(@D) && echo "nvcc $<"
	@$(NVCC) -std=c++17 -O2 -DGM_CUDA_HEADER -I. -Xcompiler -fPIC,-Wall,-Wextra $(CUDA_GENCODE) -c -o $@ $<

# CUDA's runtime is inside: the library is all that probe-machine and record-traces need.
$(BUILD)/lib/libgatemass-cuda.so: $(BUILD)/cuda/capture_cuda.o
	@mkdir -p $(@D) && echo "link $@"
	@$(NVCC) -shared -cudart static -o $@ $<

$(BUILD)/cuda/obj/%.o: %.c $(BUILD)/cuda/capture_cuda.o
	@mkdir -p $(@D) && echo "cc   $< (toolkit's header)"
	@$(CC) $(CUDA_CPPFLAGS) $(ALL_CFLAGS) -MMD -MP -c -o $@ $<

# The stand-in's functions against the toolkit's declarations: compiling is the test.
.PHONY: cuda-signatures
cuda-signatures: $(call cuda_object,$(FAKE_SOURCES) recorder/capture_runtime.c)

$(BUILD)/cuda/test_capture: $(call cuda_object,tests/cuda/test_capture.c $(CUDA_SOURCES)) $(BUILD)/cuda/capture_cuda.o $(LIBRARY)
	@echo "link $@" && $(NVCC) -cudart static -o $@ $(filter %.o,$^) $(LIBRARY) -lcmocka -lpthread $(LDLIBS)

$(BUILD)/cuda/bench_capture: $(call cuda_object,tests/cuda/bench_capture.c recorder/capture.c) $(BUILD)/cuda/capture_cuda.o $(LIBRARY)
	@echo "link $@" && $(NVCC) -cudart static -o $@ $(filter %.o,$^) $(LIBRARY) $(CUDA_LIBS) -lcublas -lpthread $(LDLIBS)

$(BUILD)/cuda/cublas_router: $(call cuda_object,recorder/examples/cublas_router.c recorder/capture.c) $(BUILD)/cuda/capture_cuda.o \
		$(LIBRARY)
	@echo "link $@" && $(NVCC) -cudart static -o $@ $(filter %.o,$^) $(LIBRARY) $(CUDA_LIBS) -lcublas -lpthread $(LDLIBS)

# capture.c in the CUDA programs needs gm_cuda_load too, should a caller not name its table.
$(BUILD)/cuda/test_capture $(BUILD)/cuda/bench_capture $(BUILD)/cuda/cublas_router: $(call cuda_object,recorder/capture_runtime.c)

# `make` makes the library wherever there is a toolkit that works with this machine's compiler, and `make check` compiles all of it;
# CUDA=no leaves it out.
CUDA ?= $(if $(NVCC),yes,no)
ifneq ($(CUDA),no)
all: cuda-library-if-there
cuda-library-if-there:
	@$(MAKE) --no-print-directory $(BUILD)/lib/libgatemass-cuda.so || \
		echo "make: libgatemass-cuda.so was left out (see above; CUDA=no says so at once)" >&2
check: cuda
endif

check-gpu: all ## tests, a recording and its cost on a real GPU (MODEL=FILE.gguf: yours)
	@BUILD=$(BUILD) MODEL="$(MODEL)" sh scripts/check-gpu.sh

install: install-probe
install-probe: all
	@mkdir -p $(DESTDIR)$(PREFIX)/lib
	@lib=$(BUILD)/lib/libgatemass-cuda.so; [ ! -f $$lib ] || install -m 755 $$lib $(DESTDIR)$(PREFIX)/lib
uninstall: uninstall-probe
uninstall-probe:
	rm -f $(BINDIR)/gatemass-probe-machine $(DESTDIR)$(PREFIX)/lib/libgatemass-cuda.so
.PHONY: install-probe uninstall-probe
