# The front door: `make help` says what there is. CMake does the building.

BUILD      ?= build
JOBS       ?= $(shell nproc 2>/dev/null || echo 2)
CMAKE_ARGS ?=
GENERATOR  := $(if $(shell command -v ninja 2>/dev/null),Ninja,Unix Makefiles)
FORMAT     ?= $(or $(shell command -v clang-format-14 2>/dev/null),clang-format)
SOURCES     = $(shell git ls-files --cached --others --exclude-standard '*.c' '*.h' '*.cu' '*.cuh')

.PHONY: all configure test test-faults demo bench format format-check asan gpu-test gpu-check bundle clean help

all: configure
	@cmake --build $(BUILD) -j $(JOBS) --target yoke

# Once is enough: CMake configures again by itself when its own files change.
configure:
	@command -v cmake >/dev/null || { echo "yoke: cmake: not found; run tools/setup" >&2; exit 2; }
	@test -z '$(CMAKE_ARGS)' && test -f $(BUILD)/build.ninja -o -f $(BUILD)/Makefile || \
	    cmake -S . -B $(BUILD) $(if $(wildcard $(BUILD)/CMakeCache.txt),,-G "$(GENERATOR)") $(CMAKE_ARGS)

test:
	@BUILD='$(BUILD)' JOBS='$(JOBS)' CMAKE_ARGS='$(CMAKE_ARGS)' tools/test.sh $(if $(TESTS),'$(TESTS)')

test-faults: all
	@YK_BUILD='$(abspath $(BUILD))' YK_FAULT_TRIALS='$(or $(TRIALS),400)' bash tests/ranks/train/faults.sh

demo:
	@BUILD='$(BUILD)' JOBS='$(JOBS)' CMAKE_ARGS='$(CMAKE_ARGS)' DATA='$(DATA)' tools/demo.sh

bench: all
	@BUILD='$(BUILD)' bench/cpu.sh

format:
	@$(FORMAT) -i $(SOURCES)

format-check:
	@$(FORMAT) --dry-run --Werror $(SOURCES)

asan:
	@cmake --preset asan
	@cmake --build --preset asan -j $(JOBS)
	@ctest --test-dir build-asan --no-tests=error --output-on-failure

gpu-test:
	@cmake --preset cuda
	@cmake --build --preset cuda -j $(JOBS)
	@tests/gpu/run.sh build-cuda

gpu-check:
	@cmake --preset cuda
	@cmake --build --preset cuda -j $(JOBS)
	@tests/gpu/check.sh build-cuda $(GPU_CHECK)

# For other machines: in a build of its own, unless one is named, with CUDA where its compiler is.
BUNDLED = $(if $(filter file,$(origin BUILD)),build-bundle,$(BUILD))
bundle:
	@$(MAKE) --no-print-directory all BUILD='$(BUNDLED)' \
	    CMAKE_ARGS='$(strip $(if $(filter file,$(origin BUILD)),-DYK_ELSEWHERE=ON) $(CMAKE_ARGS))'
	@$(if $(filter tests,$(WITH)),cmake --build '$(BUNDLED)' -j $(JOBS))
	@BUILD='$(BUNDLED)' tools/bundle.sh $(strip $(addprefix --with ,$(WITH)) $(addprefix --without ,$(WITHOUT)))

clean:
	@rm -rf build build-*/

help:
	@echo 'make                     build build/yoke; CMAKE_ARGS="-DYK_CUDA=OFF ..." to choose, JOBS=N'
	@echo 'make demo [DATA=my.txt]  train on a real text for 90 seconds and write some'
	@echo 'make test [TESTS=regex]  build and run the tests'
	@echo 'make test-faults         kill and stop ranks of a training, TRIALS=400 times'
	@echo 'make bench               tokens per second beside PyTorch, on this machine'
	@echo 'make asan                the tests under the address and undefined-behaviour sanitizers'
	@echo 'make gpu-test            the tests that need a GPU'
	@echo 'make gpu-check           the same, then training steps timed; GPU_CHECK="--only yoke gpt2-124m"'
	@echo 'make bundle              the program and the libraries it needs, as a folder to carry along;'
	@echo '                         WITH=tests, WITHOUT="cudnn nccl"'
	@echo 'make format              clang-format every source; format-check only looks'
	@echo 'make clean               remove build/ and build-*/'
	@echo 'tools/setup              install what building and testing need'
