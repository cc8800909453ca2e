# FlashAttention, chapter by chapter. `make` prints the targets; README.md says the rest.

BUILD := build
CC := gcc
OPT := -O2 -march=native
# What runs for every instruction is worth the vectoriser's best.
HOT := common/softgpu/execute/% common/softgpu/check/% common/softgpu/machine/% common/softgpu/timing/% \
    common/harness/reference% common/harness/model%
FAST := -O3 -fno-math-errno
# Products and sums are fused only where the code says so: the emulator must round like the GPU.
CFLAGS := -std=gnu11 -ffp-contract=off $(OPT) -g -Wall -Wextra -Werror -Icommon -pthread -fPIC -MMD -MP
MAKEFLAGS += --no-builtin-rules
ifeq ($(MAKELEVEL)$(filter -j% --jobs%,$(MAKEFLAGS)),0)
MAKEFLAGS += --jobs=$(shell nproc 2>/dev/null || echo 2)
endif
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := help
.PHONY: help softgpu timeline flexible splits split-shapes latency compare feeds feeds-256 ladder table-fa1 table-fp8 validate test test-figures test-long test-sanitized run-sanitized bench-softgpu format check-format clean lessons forms setup-compiler

# ---- the CUDA compiler: the one found, or one that `make` installs into build/toolkit
NVCC := $(shell sh common/setup/nvcc.sh $(BUILD))
TOOLKIT := $(patsubst %/bin/nvcc,%,$(NVCC))
# Not -isystem: with a toolkit that is still to be installed the folder appears later.
CUDA_INCLUDE := -isystem $(if $(wildcard $(TOOLKIT)/targets/x86_64-linux/include),$(TOOLKIT)/targets/x86_64-linux/include,$(TOOLKIT)/include)

# ---- what is built: head_dims (a list, or "all"), and which chapters' kernels a chapter links

HEAD_DIMS := 64 128
ALL_HEAD_DIMS := 64 96 128 192 256
ifeq ($(HEAD_DIMS),all)
override HEAD_DIMS := $(ALL_HEAD_DIMS)
endif
comma := ,
ASKED := $(subst $(comma), ,$(HEAD_DIMS))
WANTED := $(filter $(ASKED),$(ALL_HEAD_DIMS))
ifneq ($(filter-out $(ALL_HEAD_DIMS),$(ASKED))$(if $(WANTED),,none),)
$(error HEAD_DIMS="$(HEAD_DIMS)": choose from $(ALL_HEAD_DIMS), or "all")
endif
empty :=
VARIANT := d$(subst $(empty) $(empty),-,$(strip $(WANTED)))
BUILT := $(foreach d,$(WANTED),-DBUILT_$(d)=1)

CHAPTERS := 1 2 3 4 5 6 7 8 9
USES_1 := 01_naive
USES_2 := 01_naive 02_tiled
USES_3 := 01_naive 02_tiled 03_online_softmax
USES_4 := 01_naive 02_tiled 03_online_softmax 04_recompute_backward
USES_5 := 01_naive 02_tiled 03_online_softmax 04_recompute_backward 05_hopper_async
USES_6 := 01_naive 02_tiled 03_online_softmax 04_recompute_backward 05_hopper_async 06_fp8_hadamard
USES_7 := 01_naive 03_online_softmax 05_hopper_async 06_fp8_hadamard 07_persistent_lpt
USES_8 := 01_naive 03_online_softmax 08_blackwell
USES_9 := 01_naive 09_decode
# A kernel of another chapter alone: the backward that chapter 8's are compared with.
ALSO_8 := 04_recompute_backward/recompute_tensor_cores
FOLDER_1 := 01_naive
FOLDER_2 := 02_tiled
FOLDER_3 := 03_online_softmax
FOLDER_4 := 04_recompute_backward
FOLDER_5 := 05_hopper_async
FOLDER_6 := 06_fp8_hadamard
FOLDER_7 := 07_persistent_lpt
FOLDER_8 := 08_blackwell
FOLDER_9 := 09_decode

PORTABLE := -gencode arch=compute_80,code=[compute_80,sm_80,sm_90]
GENCODE_01_naive := $(PORTABLE)
GENCODE_02_tiled := $(PORTABLE)
GENCODE_03_online_softmax := $(PORTABLE)
GENCODE_04_recompute_backward := $(PORTABLE)
GENCODE_05_hopper_async := -gencode arch=compute_90a,code=[compute_90a,sm_90a]
GENCODE_06_fp8_hadamard := $(GENCODE_05_hopper_async)
GENCODE_07_persistent_lpt := $(GENCODE_05_hopper_async)
GENCODE_08_blackwell := -gencode arch=compute_100a,code=[compute_100a,sm_100a]
GENCODE_09_decode := $(PORTABLE)
GENCODE_09_decode/prefill_kernel := $(GENCODE_05_hopper_async)
GENCODE_09_decode/cluster_combine := $(GENCODE_05_hopper_async)
GENCODE_tests := $(PORTABLE)

NVCCFLAGS := -std=c++17 -O3 -lineinfo --no-compress -Icommon $(BUILT) \
    -Werror all-warnings -Xptxas -warn-spills,-warn-lmem-usage,-Werror -Xcompiler -fPIC,-Wall

objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
kernels = $(patsubst %.cu,$(BUILD)/$(VARIANT)/%.o,$(filter-out %/exercise.cu,$(wildcard $(addsuffix /*.cu,$(1)))))

# ---- help

help:
	@echo "make chapter-N        builds chapter N (1 to 9); then ./run     HEAD_DIMS=\"64 128\" or all"
	@echo "make exercise-N       the chapter's kernel with its idea taken out, for you to fill; then ./run     make hint-N"
	@echo "make hunt-N-K         a kernel of chapter N (5 to 8) with a bug: find it from softgpu's report; make answer-N-K"
	@echo "make diff-M-N         what chapter N changed in the kernel: diff-1-2, diff-2-3 … diff-8-9"
	@echo "make softgpu          builds the emulator: build/softgpu/softgpu PROGRAM runs any CUDA program"
	@echo "make test             builds everything and runs the tests (under 15 minutes)"
	@echo "make test-long        the full matrix: CHAPTER=N, softgpu, edges or exercises, or all"
	@echo "make compare          all steps of all chapters on one problem: table, CSV and picture in results/"
	@echo "make feeds            what a tile of K and V costs each unit, by step and head_dim"
	@echo "make timeline         what the warpgroups of chapter 5's steps do when: results/timeline.png"
	@echo "make flexible         what score mods and mask mods cost in chapter 8, and what block masks save"
	@echo "make splits           what the number of splits does in chapter 9: results/splits.png"
	@echo "make split-shapes     its choice of splits beside the best of a sweep, for 30 problems (minutes)"
	@echo "make latency          what a token takes there, from 1 to 64 sequences of 1k to 128k keys (minutes)"
	@echo "make ladder           TFLOP/s over the sequence length, as in the papers' figures (takes long)"
	@echo "make bench-softgpu    how fast the emulator is, beside plain C"
	@echo "make table-fa1        FlashAttention's table of FLOPs, HBM bytes and time, counted again"
	@echo "make table-fp8        FlashAttention-3's table of fp8 errors, measured again (minutes)"
	@echo "make validate         runs the timing model beside published figures, writes its validation page"
	@echo "make lessons          runs the chapters and writes their numbers and pictures into the lessons"
	@echo "make format           clang-format over all sources"
	@echo "make clean            removes build/, results/ and ./run"
	@echo
	@echo "nvcc:       $$(if [ -x '$(NVCC)' ]; then echo '$(NVCC)'; else echo 'none yet; installed into $(BUILD)/toolkit when first needed'; fi)"
	@echo "GPU:        $$(nvidia-smi --query-gpu=name --format=csv,noheader 2>/dev/null | head -n 1 | grep . || echo 'none found; softgpu is used')"
	@echo "matplotlib: $$(python3 -c 'import matplotlib; print(matplotlib.__version__)' 2>/dev/null || $(BUILD)/venv/bin/python -c 'import matplotlib; print(matplotlib.__version__, "in $(BUILD)/venv")' 2>/dev/null || echo 'none yet; installed into $(BUILD)/venv when first needed')"
	@echo "check:      $$(pkg-config --modversion check 2>/dev/null || echo 'none yet; installed for make test')"

# ---- set-up

# nvcc needs a C++ compiler for the host side.
$(BUILD)/.compiler:
	@command -v g++ >/dev/null 2>&1 || sh common/setup/system_package.sh "a C++ compiler (nvcc needs one)" g++
	@mkdir -p $(BUILD) && touch $@

$(BUILD)/toolkit/nvidia/cu13/bin/nvcc:
	@sh common/setup/toolkit.sh $(BUILD)

# ---- C

# Objects are made again when the compiler or its flags change.
FLAGS := $(CC) $(CFLAGS) $(FAST) $(filter-out $(BUILT),$(NVCCFLAGS))
ifneq ($(file <$(BUILD)/.flags),$(FLAGS))
$(shell mkdir -p $(BUILD))
$(file >$(BUILD)/.flags,$(FLAGS))
endif

$(BUILD)/obj/common/softgpu/api/%.o: common/softgpu/api/%.c $(BUILD)/.flags | $(NVCC)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(CUDA_INCLUDE) -c $< -o $@

$(BUILD)/obj/common/harness/%.o: common/harness/%.c $(BUILD)/.flags | $(NVCC)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(if $(filter $(HOT),$<),$(FAST)) $(CUDA_INCLUDE) -DTOOLKIT_LIBRARIES='"$(abspath $(TOOLKIT))"' -c $< -o $@

$(BUILD)/obj/0%.o: 0%.c $(BUILD)/.flags | $(NVCC)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(CUDA_INCLUDE) -c $< -o $@

$(BUILD)/obj/%.o: %.c $(BUILD)/.flags
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(if $(filter $(HOT),$<),$(FAST)) -c $< -o $@

# ---- softgpu

SOFTGPU := $(BUILD)/softgpu
API_EXTRA := common/softgpu/api/launcher.c common/softgpu/api/driver_stub.c
CORE := $(filter-out common/softgpu/api/%,$(wildcard common/softgpu/*.c common/softgpu/*/*.c))
API := $(filter-out $(API_EXTRA),$(wildcard common/softgpu/api/*.c))
CORE_OBJECTS := $(call objects,$(CORE))
API_OBJECTS := $(call objects,$(API))

softgpu: $(SOFTGPU)/softgpu $(SOFTGPU)/lib/libcudart.so $(SOFTGPU)/lib/libcuda.so

$(SOFTGPU)/lib/libcudart.so.13: $(CORE_OBJECTS) $(API_OBJECTS) common/softgpu/api/exports.map
	@mkdir -p $(@D)
	@echo "  link    $@"
	@$(CC) $(OPT) -g -shared -pthread -Wl,-soname,libcudart.so.13 \
	    -Wl,--version-script=common/softgpu/api/exports.map -Wl,-z,defs \
	    $(CORE_OBJECTS) $(API_OBJECTS) -o $@ -ldl -lm

$(SOFTGPU)/lib/libcuda.so.1: $(BUILD)/obj/common/softgpu/api/driver_stub.o $(SOFTGPU)/lib/libcudart.so.13
	@echo "  link    $@"
	@$(CC) -shared -Wl,-soname,libcuda.so.1 -Wl,--no-as-needed $< -o $@ \
	    $(SOFTGPU)/lib/libcudart.so.13 -Wl,--disable-new-dtags,-rpath,'$$ORIGIN'

$(SOFTGPU)/lib/libcudart.so: $(SOFTGPU)/lib/libcudart.so.13
	@ln -sf libcudart.so.13 $@

$(SOFTGPU)/lib/libcuda.so: $(SOFTGPU)/lib/libcuda.so.1
	@ln -sf libcuda.so.1 $@

$(SOFTGPU)/softgpu: $(BUILD)/obj/common/softgpu/api/launcher.o $(SOFTGPU)/lib/libcudart.so.13
	@echo "  link    $@"
	@$(CC) $< -o $@ -ldl

# The table of instructions in softgpu's README, from the table that softgpu itself uses.
forms: softgpu
	@$(SOFTGPU)/softgpu --forms > $(BUILD)/forms.md
	@sed -i -e '/<!-- forms:begin/r $(BUILD)/forms.md' \
	    -e '/<!-- forms:begin/,/<!-- forms:end/{/<!-- forms:/!d}' common/softgpu/README.md

# ---- chapters

# The kernels' PTX and machine code. One rule for all variants: the folder names them.
$(BUILD)/$(VARIANT)/%.o: %.cu $(BUILD)/.flags | $(NVCC) $(BUILD)/.compiler
	@mkdir -p $(@D)
	@echo "  nvcc    $<"
	@$(NVCC) $(NVCCFLAGS) $(or $(GENCODE_$*),$(GENCODE_$(firstword $(subst /, ,$*)))) -MMD -MF $(@:.o=.d) -c $< -o $@ \
	    >$(@:.o=.log) 2>&1; status=$$?; cat $(@:.o=.log) >&2; \
	    if grep -qE '$(PTXAS_MENDS)' $(@:.o=.log); then rm -f $@; \
	    echo "$<: ptxas mends the kernel where it says so above, and takes its speed" >&2; exit 1; fi; exit $$status

# What ptxas only informs of: waits that it adds, products that it serialises (C7510 to C7520),
# register counts that it ignores (C7508).
PTXAS_MENDS := \(C75(08|1[0-9]|20)\)

HARNESS_OBJECTS := $(call objects,$(filter-out %/built.c,$(wildcard common/harness/*.c)))

$(BUILD)/$(VARIANT)/built.o: common/harness/built.c $(BUILD)/.flags
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(BUILT) -c $< -o $@

define chapter_rules
$(BUILD)/$(VARIANT)/chapter-$(1)/run: $(call kernels,$(USES_$(1))) \
        $(patsubst %,$(BUILD)/$(VARIANT)/%.o,$(ALSO_$(1))) $(HARNESS_OBJECTS) \
        $(BUILD)/$(VARIANT)/built.o $(call objects,$(wildcard $(FOLDER_$(1))/*.c)) | $(SOFTGPU)/lib/libcudart.so
	@mkdir -p $$(@D)
	@echo "  link    $$@"
	@$(CC) -pthread $$^ -o $$@ -L$(SOFTGPU)/lib -lcudart -lstdc++ -lm -ldl \
	    -Wl,--disable-new-dtags,-rpath,'$$$$ORIGIN/../../softgpu/lib'

.PHONY: chapter-$(1)
chapter-$(1): softgpu $(BUILD)/$(VARIANT)/chapter-$(1)/run
	@sh common/setup/plot_python.sh $(BUILD) >/dev/null || true
	@ln -sfn $(BUILD)/$(VARIANT)/chapter-$(1)/run run
	@echo "chapter $(1) is built for head_dim $(WANTED): ./run"
endef
$(foreach n,$(CHAPTERS),$(eval $(call chapter_rules,$(n))))

# ---- exercises: a chapter's kernel with its idea taken out, and the learner's own copy of it

$(BUILD)/exercise: common/course/exercise.c $(BUILD)/.flags
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $< -o $@

EXERCISES := $(foreach n,$(CHAPTERS),$(if $(wildcard $(FOLDER_$(n))/exercise.md),$(n)))
# The kernel that exercise.md names first, without .cu, and its step.
exercise_kernel = $(FOLDER_$(1))/$(shell sed -n 's/^kernel: `\([a-z0-9_]*\)\.cu`.*/\1/p' $(FOLDER_$(1))/exercise.md)
exercise_step = $(shell sed -n 's/^kernel: .*step: `\([a-z0-9-]*\)`.*/\1/p' $(FOLDER_$(1))/exercise.md)
# Options with which ./run checks it: where the chapter's own problem wouldn't show that a part is open.
exercise_options = $(shell sed -n 's/^kernel: .*options: `\([^`]*\)`.*/\1/p' $(FOLDER_$(1))/exercise.md)
exercise_defines = -DEXERCISE_STEP='"$(call exercise_step,$(1))"' -DEXERCISE_OPTIONS='"$(call exercise_options,$(1))"'
# Half-filled kernels leave variables unused and may spill: no error here.
EXERCISE_NVCCFLAGS := -std=c++17 -O3 -lineinfo --no-compress -Icommon $(BUILT) -w -Xcompiler -fPIC

define exercise_rules
# Written once, and never again.
$(FOLDER_$(1))/exercise.cu: | $(BUILD)/exercise
	@$(BUILD)/exercise write $(FOLDER_$(1)) > $$@.part && mv $$@.part $$@
	@echo "$$@ is yours: fill what is missing, then make exercise-$(1) && ./run"

$(BUILD)/$(VARIANT)/exercise-$(1)/exercise.o: $(FOLDER_$(1))/exercise.cu $(BUILD)/.flags | $(NVCC) $(BUILD)/.compiler
	@mkdir -p $$(@D)
	@echo "  nvcc    $$<"
	@$(NVCC) $(EXERCISE_NVCCFLAGS) $(or $(GENCODE_$(call exercise_kernel,$(1))),$(GENCODE_$(FOLDER_$(1)))) -MMD -MF $$(@:.o=.d) -c $$< -o $$@

$(BUILD)/$(VARIANT)/exercise-$(1)/built.o: common/harness/built.c $(FOLDER_$(1))/exercise.md $(BUILD)/.flags
	@mkdir -p $$(@D)
	@$(CC) $(CFLAGS) $(BUILT) $(call exercise_defines,$(1)) -c $$< -o $$@

$(BUILD)/$(VARIANT)/exercise-$(1)/run: $(BUILD)/$(VARIANT)/exercise-$(1)/exercise.o $(BUILD)/$(VARIANT)/exercise-$(1)/built.o \
        $(filter-out $(BUILD)/$(VARIANT)/$(call exercise_kernel,$(1)).o,$(call kernels,$(USES_$(1)))) \
        $(patsubst %,$(BUILD)/$(VARIANT)/%.o,$(ALSO_$(1))) $(HARNESS_OBJECTS) \
        $(call objects,$(wildcard $(FOLDER_$(1))/*.c)) | $(SOFTGPU)/lib/libcudart.so
	@echo "  link    $$@"
	@$(CC) -pthread $$^ -o $$@ -L$(SOFTGPU)/lib -lcudart -lstdc++ -lm -ldl \
	    -Wl,--disable-new-dtags,-rpath,'$$$$ORIGIN/../../softgpu/lib'

.PHONY: exercise-$(1) hint-$(1)
exercise-$(1): softgpu $(BUILD)/$(VARIANT)/exercise-$(1)/run $(BUILD)/exercise
	@sh common/setup/plot_python.sh $(BUILD) >/dev/null || true
	@ln -sfn $(BUILD)/$(VARIANT)/exercise-$(1)/run run
	@open=$$$$($(BUILD)/exercise open $(FOLDER_$(1)) $(FOLDER_$(1))/exercise.cu); echo "exercise $(1) is built: ./run, and when that is ok ./run --check-only --causal --seqlen-q 300 --seqlen-k 200"; \
	    [ -z "$$$$open" ] || echo "still open in $(FOLDER_$(1))/exercise.cu: $$$$open (make hint-$(1))"

hint-$(1): $(FOLDER_$(1))/exercise.cu $(BUILD)/exercise
	@$(BUILD)/exercise hint $(FOLDER_$(1)) $(FOLDER_$(1))/exercise.cu $(or $(TIER),1)
endef
$(foreach n,$(EXERCISES),$(eval $(call exercise_rules,$(n))))

# ---- what a chapter changed in the kernel: make diff-2-3 (common/course/diff.txt)

DIFFS := $(shell sed -n 's/^\([1-9]-[1-9]\) .*/diff-\1/p' common/course/diff.txt | uniq)
.PHONY: $(DIFFS)
$(DIFFS): diff-%:
	@sh common/course/diff.sh $*

# ---- FlashAttention's first table, counted again (a minute)

table-fa1: softgpu $(BUILD)/$(VARIANT)/chapter-4/run
	@python3 common/plot/table_fa1.py $(BUILD)/$(VARIANT)/chapter-4/run

# ---- FlashAttention-3's table of fp8 errors, measured again (minutes)

$(BUILD)/obj/common/plot/fp8_error.o: CFLAGS += $(CUDA_INCLUDE)
$(BUILD)/obj/common/plot/fp8_error.o: | $(NVCC)
$(BUILD)/fp8_error: $(call objects,common/plot/fp8_error.c $(addprefix common/harness/,model_fp8.c \
        model.c reference.c convert.c parallel.c random.c problem.c sample.c scatter.c npy.c files.c input.c lengths.c mods.c \
        cache.c cache_input.c rotary.c))
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ -lm

table-fp8: softgpu $(BUILD)/$(VARIANT)/chapter-6/run $(BUILD)/fp8_error
	@$(plot_python) python3 common/plot/table_fp8.py $(BUILD)/$(VARIANT)/chapter-6/run $(BUILD)/fp8_error

# ---- comparisons of all chapters: table, CSV, JSON and picture in results/
#
# COMPARE_FLAGS and LADDER_FLAGS go to every ./run: make compare COMPARE_FLAGS="--causal".
# What has run is kept in results/, so a stopped comparison goes on where it was.

CHAPTER_LIST := $(subst $(empty) $(empty),$(comma),$(CHAPTERS))
ALL_CHAPTERS := softgpu $(foreach n,$(CHAPTERS),$(BUILD)/$(VARIANT)/chapter-$(n)/run)
plot_python = PLOT_PYTHON=$$(sh common/setup/plot_python.sh $(BUILD))

compare: $(ALL_CHAPTERS)
	@$(plot_python) python3 common/plot/compare.py $(BUILD)/$(VARIANT) $(CHAPTER_LIST) $(COMPARE_FLAGS)

ladder: $(ALL_CHAPTERS)
	@$(plot_python) python3 common/plot/ladder.py $(BUILD)/$(VARIANT) $(subst $(empty) $(empty),$(comma),$(filter-out 8 9,$(CHAPTERS))) $(LADDER_FLAGS)

# head_dim 256 is not among the default ones: its variant is built apart, and only where it is missing.
# Chapter 9's tiles wait for memory, not for units; chapter 8's are another GPU's.
FEEDS_CHAPTERS := $(filter-out 4 8 9,$(CHAPTERS))
feeds: $(ALL_CHAPTERS)
	@$(if $(filter 256,$(WANTED)),,$(MAKE) --no-print-directory HEAD_DIMS=256 feeds-256)
	@$(plot_python) python3 common/plot/feeds.py $(subst $(empty) $(empty),$(comma),$(FEEDS_CHAPTERS)) \
	    $(subst $(empty) $(empty),$(comma),$(WANTED))=$(BUILD)/$(VARIANT) \
	    $(if $(filter 256,$(WANTED)),,256=$(BUILD)/d256)
feeds-256: softgpu $(foreach n,$(FEEDS_CHAPTERS),$(BUILD)/d256/chapter-$(n)/run)

# Who computed what when, in chapter 5's steps: the trace, for ui.perfetto.dev, and a picture of it.
timeline: softgpu $(BUILD)/$(VARIANT)/chapter-5/run
	@mkdir -p results
	@$(BUILD)/$(VARIANT)/chapter-5/run --steps warp-specialised,pingpong,intra-warpgroup \
	    --trace results/timeline.json --csv - >/dev/null
	@$$(sh common/setup/plot_python.sh $(BUILD)) common/plot/timeline.py results/timeline.json results/timeline.png
	@echo && echo "results/timeline.json  results/timeline.png"

# What score mods and mask mods cost, and what block masks save (a minute).
flexible: softgpu $(BUILD)/$(VARIANT)/chapter-8/run
	@python3 common/plot/flexible.py $(BUILD)/$(VARIANT)/chapter-8/run

# What the number of splits does in chapter 9, and the one that auto-split chooses.
splits: softgpu $(BUILD)/$(VARIANT)/chapter-9/run
	@$$(sh common/setup/plot_python.sh $(BUILD)) common/plot/splits.py $(BUILD)/$(VARIANT)/chapter-9/run results/splits.csv results/splits.png
	@echo && echo "results/splits.csv  results/splits.png"

# The choice beside the best of a sweep, for 30 problems (minutes).
split-shapes: softgpu $(BUILD)/$(VARIANT)/chapter-9/run
	@python3 common/plot/split_shapes.py $(BUILD)/$(VARIANT)/chapter-9/run

# What a token takes, by batch and context (minutes).
latency: softgpu $(BUILD)/$(VARIANT)/chapter-9/run
	@$$(sh common/setup/plot_python.sh $(BUILD)) common/plot/latency.py $(BUILD)/$(VARIANT)/chapter-9/run results/latency.png

# ---- lessons: the numbers between their markers, and the pictures beside them

# What chapter 5's pictures are drawn from: softgpu's address functions and figures.
$(BUILD)/dump_layouts: $(call objects,common/plot/dump_layouts.c common/softgpu/execute/descriptor.c \
        common/softgpu/timing/figures.c)
	@$(CC) $^ -o $@

lessons: softgpu $(BUILD)/dump_layouts $(BUILD)/fp8_error $(foreach n,$(if $(CHAPTER),$(CHAPTER),$(CHAPTERS)),$(BUILD)/$(VARIANT)/chapter-$(n)/run)
	@PLOT_PYTHON=$$(sh common/setup/plot_python.sh $(BUILD)) DUMP_LAYOUTS=$(abspath $(BUILD))/dump_layouts \
	    FP8_ERROR=$(abspath $(BUILD))/fp8_error python3 common/plot/lessons.py $(BUILD)/$(VARIANT) $(CHAPTER)

# ---- tests
#
# Runners: softgpu's units, the harness's units (beside a fake runtime), whole programs, and the
# chapters' steps.

SOFTGPU_SUITES := ptx_module ptx_parser table flow lower arithmetic integer convert half warp \
    memory memory_checks atomic findings global settings timing traffic block machine sample run \
    spin branch fatbin api graph driver matrix matrix_arithmetic matrix_move cp_async mbarrier \
    definedness race race_lanes race_global writes race_wgmma cluster descriptor wgmma wgmma_rules \
    toy_hopper tensor_map bulk bulk_rules target threads trace \
    tcgen05_move tcgen05_mma tcgen05_order tcgen05_copy tcgen05_sparse tcgen05_fields launch_control
HARNESS_SUITES := reference npy options check model_fp8 scatter sample run predict explain varlen lengths cache cache_files mods
PROGRAM_SUITES := toy toy_tensor_cores toy_backward index schedule schedule_study split programs usage outputs runs broken \
    matrix machine_code timeline compare sabotage seeded_bugs exercises markdown
CHAPTER_SUITES := sizes edges tensor_cores backward hopper_forward hopper_backward fp8 persistent \
    blackwell blackwell_backward flexible varlen decode decode_claims torch
LONG_SUITES := long_matrix long_sizes
FIGURES_SUITES := timing_figures
TEST_CFLAGS = -Itests/softgpu -Itests/harness $(CUDA_INCLUDE) $(CHECK_CFLAGS)
CHECK_CFLAGS = $(shell pkg-config --cflags check 2>/dev/null)
CHECK_LIBS = $(shell pkg-config --libs check 2>/dev/null || echo -lcheck -lsubunit) -lm -lrt -lpthread -ldl
suites = -DSUITES='$(foreach s,$(1),X($(s)))'
TESTS := $(BUILD)/tests

$(BUILD)/.check:
	@pkg-config --exists check 2>/dev/null || \
	    sh common/setup/system_package.sh "Check, the unit-test library" check pkg-config
	@mkdir -p $(BUILD) && touch $@

$(BUILD)/obj/tests/%.o: tests/%.c $(BUILD)/.flags | $(NVCC) $(BUILD)/.check
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) $(TEST_CFLAGS) -c $< -o $@

$(TESTS)/%_runner.o: tests/runner.c Makefile | $(BUILD)/.check
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $(TEST_CFLAGS) $(call suites,$($*_SUITES)) -c $< -o $@

SOFTGPU_TESTS := $(filter-out %/test_programs.c %/test_sabotage.c %/test_seeded_bugs.c %/test_timing_figures.c %/fuzz_ptx.c %/fuzz_fatbin.c,$(wildcard tests/softgpu/*.c)) \
    tests/chapters/json.c tests/chapters/timeline.c
$(TESTS)/softgpu: $(TESTS)/SOFTGPU_runner.o $(call objects,$(SOFTGPU_TESTS)) $(CORE_OBJECTS) $(API_OBJECTS)
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

HARNESS_TESTS := $(filter-out %/fuzz_npy.c,$(wildcard tests/harness/*.c))
$(TESTS)/harness: $(TESTS)/HARNESS_runner.o $(call objects,$(HARNESS_TESTS)) \
        $(filter-out %/main.o,$(HARNESS_OBJECTS))
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

PROGRAM_TESTS := tests/softgpu/test_programs.c tests/softgpu/test_sabotage.c tests/softgpu/test_seeded_bugs.c $(wildcard tests/chapters/*.c) \
    07_persistent_lpt/schedule_study.c
FIGURES_TESTS := tests/softgpu/test_timing_figures.c
$(TESTS)/programs: $(TESTS)/PROGRAM_runner.o $(call objects,$(PROGRAM_TESTS))
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

$(TESTS)/chapters: $(TESTS)/CHAPTER_runner.o $(call objects,$(PROGRAM_TESTS))
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

$(TESTS)/long: $(TESTS)/LONG_runner.o $(call objects,$(wildcard tests/chapters/*.c) 07_persistent_lpt/schedule_study.c)
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

$(TESTS)/figures: $(TESTS)/FIGURES_runner.o $(call objects,$(FIGURES_TESTS))
	@echo "  link    $@"
	@$(CC) $(OPT) -pthread $^ -o $@ $(CHECK_LIBS)

# A chapter whose steps are wrong, each in its own way: the tests see what its run says.
BROKEN := $(BUILD)/$(VARIANT)/broken-chapter/run
$(BROKEN): $(BUILD)/$(VARIANT)/tests/chapters/broken/broken.o $(HARNESS_OBJECTS) \
        $(BUILD)/$(VARIANT)/built.o $(BUILD)/obj/tests/chapters/broken/chapter.o | $(SOFTGPU)/lib/libcudart.so
	@mkdir -p $(@D)
	@echo "  link    $@"
	@$(CC) -pthread $^ -o $@ -L$(SOFTGPU)/lib -lcudart -lstdc++ -lm -ldl \
	    -Wl,--disable-new-dtags,-rpath,'$$ORIGIN/../../softgpu/lib'

$(TESTS)/fuzz_ptx: $(BUILD)/obj/tests/softgpu/fuzz_ptx.o $(CORE_OBJECTS)
	@$(CC) $(OPT) -pthread $^ -o $@ -lm -ldl
$(TESTS)/fuzz_fatbin: $(call objects,tests/softgpu/fuzz_fatbin.c common/softgpu/api/fatbin.c common/softgpu/api/cubin.c)
	@$(CC) $(OPT) -pthread $^ -o $@ -ldl
$(TESTS)/fuzz_npy: $(call objects,tests/harness/fuzz_npy.c $(addprefix common/harness/,npy.c files.c convert.c random.c parallel.c))
	@$(CC) $(OPT) -pthread $^ -o $@ -lm

# The programs that the tests run through the launcher.
$(TESTS)/cuda/%: tests/programs/%.cu $(wildcard tests/programs/*.h tests/programs/timing/*.h common/device/*.h) | $(NVCC) $(BUILD)/.compiler $(SOFTGPU)/lib/libcudart.so
	@mkdir -p $(@D)
	@echo "  nvcc    $<"
	@$(NVCC) -std=c++17 --extended-lambda -lineinfo -cudart shared -Icommon -L$(SOFTGPU)/lib \
	    -L$(TOOLKIT)/lib64 -L$(TOOLKIT)/lib \
	    -gencode arch=compute_$(PROGRAM_ARCH),code=compute_$(PROGRAM_ARCH) $< -o $@
# Programs with instructions of Hopper say so by their names.
PROGRAM_ARCH = $(or $(ARCH_$*),$(if $(filter cluster_% tma_% wgmma_% race_%,$*),90a,80))
ARCH_timing/bulk := 90
ARCH_quantise := 90
ARCH_timing/wgmma := 90a
ARCH_timing/packed := 100
ARCH_timing/tcgen05 := 100a
ARCH_tcgen05_gemm := 100a
ARCH_tcgen05_pair := 100a
ARCH_tcgen05_attention := 100a
ARCH_exp2_polynomial := 100a
$(TESTS)/cuda/exp2_polynomial: 08_blackwell/exp2_polynomial.h
$(TESTS)/cuda/quantise: $(wildcard 06_fp8_hadamard/quantise* 06_fp8_hadamard/hadamard.h)
TEST_PROGRAMS := $(patsubst tests/programs/%.cu,$(TESTS)/cuda/%,$(wildcard tests/programs/*.cu))
TIMING_PROGRAMS := $(patsubst tests/programs/%.cu,$(TESTS)/cuda/%,$(wildcard tests/programs/timing/*.cu))

# Right kernels with bugs that are switched on one by one (tests/seeded_bugs): a program for each of
# these units, of the chapter's sources but for that unit. `make test` runs a few, test-long all.
SEEDED_SMALL := tests/seeded_bugs/small tests/seeded_bugs/blocks tests/programs/tcgen05_attention
SEEDED_SOME := 03_online_softmax/cp_async 05_hopper_async/warp_specialised 06_fp8_hadamard/quantise
SEEDED_UNITS := $(SEEDED_SMALL) $(SEEDED_SOME) 02_tiled/two_pass 02_tiled/tiled_matmul \
    03_online_softmax/mma_sync 04_recompute_backward/recompute_tensor_cores 05_hopper_async/backward \
    06_fp8_hadamard/fp8_attention 07_persistent_lpt/lpt 08_blackwell/persistent_lpt 08_blackwell/two_cta \
    tests/programs/tcgen05_pair
SEEDED := $(SEEDED_SMALL) $(if $(filter 64,$(WANTED)),$(SEEDED_SOME))
seeded_programs = $(patsubst %,$(TESTS)/seeded/%/run,$(1))
seeded_chapter = $(patsubst 0%,%,$(filter 0%,$(firstword $(subst _, ,$(1)))))
seeded_objects = $(if $(call seeded_chapter,$(1)),$(filter-out $(BUILD)/$(VARIANT)/$(1).o,$(call \
    kernels,$(USES_$(call seeded_chapter,$(1)))) $(patsubst \
    %,$(BUILD)/$(VARIANT)/%.o,$(ALSO_$(call seeded_chapter,$(1)))) $(HARNESS_OBJECTS) $(call \
    objects,$(wildcard $(FOLDER_$(call seeded_chapter,$(1)))/*.c))))

$(TESTS)/seed: tests/seeded_bugs/seed.c tests/seeded_bugs/bugs.h
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) $< -o $@

# What the chapter's program says of itself: head_dim 64 alone.
$(TESTS)/seeded/built.o: common/harness/built.c $(BUILD)/.flags
	@mkdir -p $(@D)
	@$(CC) $(CFLAGS) -DBUILT_64=1 -c $< -o $@

seeded_arch = $(foreach a,$(if $(findstring tcgen05,$(1))$(filter 08_%,$(1)),100a,90a),-gencode arch=compute_$(a),code=compute_$(a))
define seeded_rule
$(TESTS)/seeded/$(1)/run: $(1).cu $(wildcard $(dir $(1))*.h common/device/*.h) $(TESTS)/seed tests/seeded_bugs/seeded.h \
        $(BUILD)/obj/tests/seeded_bugs/select.o $(TESTS)/seeded/built.o $(call seeded_objects,$(1)) \
        | $(NVCC) $(BUILD)/.compiler $(SOFTGPU)/lib/libcudart.so
	@mkdir -p $$(@D)
	@echo "  nvcc    $(1).cu (with bugs)"
	@$(TESTS)/seed $(1) $$(@D)
	@$(NVCC) -std=c++17 -O3 -lineinfo -include tests/seeded_bugs/seeded.h -I$$(@D) -I. -Icommon -Itests \
	    -DBUILT_64=1 -Xcompiler -fPIC $(call seeded_arch,$(1)) \
	    -c $$(@D)/$(1).cu -o $$(@D)/unit.o
	@$(CC) -pthread $(call seeded_objects,$(1)) $(if $(call seeded_chapter,$(1)),$(TESTS)/seeded/built.o) \
	    $$(@D)/unit.o $(BUILD)/obj/tests/seeded_bugs/select.o -o $$@ -L$(SOFTGPU)/lib -lcudart -lstdc++ \
	    -lm -ldl -Wl,--disable-new-dtags,-rpath,$(abspath $(SOFTGPU)/lib)
endef
$(foreach unit,$(SEEDED_UNITS),$(eval $(call seeded_rule,$(unit))))

# Bug hunts: a chapter's kernel with one of the seeded bugs in it, as it would stand in a careless one.
# Which: the unit, and the number of its bug in tests/seeded_bugs/bugs.h.
HUNT_5-1 := 05_hopper_async/warp_specialised 1
HUNT_5-2 := 05_hopper_async/warp_specialised 5
HUNT_5-3 := 05_hopper_async/backward 5
HUNT_6-1 := 06_fp8_hadamard/quantise 1
HUNT_6-2 := 06_fp8_hadamard/fp8_attention 2
HUNT_6-3 := 06_fp8_hadamard/fp8_attention 5
HUNT_7-1 := 07_persistent_lpt/lpt 1
HUNT_7-2 := 07_persistent_lpt/lpt 3
HUNT_7-3 := 07_persistent_lpt/lpt 2
HUNT_8-1 := 08_blackwell/persistent_lpt 1
HUNT_8-2 := 08_blackwell/persistent_lpt 2
HUNT_8-3 := 08_blackwell/persistent_lpt 3
HUNTS := 5-1 5-2 5-3 6-1 6-2 6-3 7-1 7-2 7-3 8-1 8-2 8-3

define hunt_rules
$(BUILD)/hunt-$(1)/program: $(2).cu $(wildcard $(dir $(2))*.h common/device/*.h) $(TESTS)/seed $(TESTS)/seeded/built.o \
        $(call seeded_objects,$(2)) | $(NVCC) $(BUILD)/.compiler $(SOFTGPU)/lib/libcudart.so
	@mkdir -p $$(@D)
	@$(TESTS)/seed $(2) $$(@D) $(3) >$$(@D)/options
	@echo "  nvcc    $(2).cu (with a bug)"
	@$(NVCC) $(filter-out $(BUILT),$(EXERCISE_NVCCFLAGS)) -I$$(@D) -I. -DBUILT_64=1 $(call seeded_arch,$(2)) -c $$(@D)/$(2).cu -o $$(@D)/unit.o
	@$(CC) -pthread $(call seeded_objects,$(2)) $(TESTS)/seeded/built.o $$(@D)/unit.o -o $$@ -L$(SOFTGPU)/lib -lcudart \
	    -lstdc++ -lm -ldl -Wl,--disable-new-dtags,-rpath,$(abspath $(SOFTGPU)/lib)

# ./run shows the bug without options.
$(BUILD)/hunt-$(1)/run: $(BUILD)/hunt-$(1)/program
	@{ echo '#!/bin/sh'; echo "exec '$(abspath $(BUILD))/hunt-$(1)/program' --device softgpu --check-only --heads 2 \
	    --kv-heads 2 --seqlen 512 --head-dim 64 --sms 2 $$$$(cat $(BUILD)/hunt-$(1)/options) \"\$$$$@\""; } >$$@ && chmod +x $$@

.PHONY: hunt-$(1) answer-$(1)
hunt-$(1): softgpu $(BUILD)/hunt-$(1)/run
	@ln -sfn $(BUILD)/hunt-$(1)/run run
	@echo "hunt $(1) is built: ./run. A line of $(BUILD)/hunt-$(1)/$(patsubst %/,%,$(dir $(2))) is wrong, or missing:"
	@echo "find it from what softgpu says, and say what must stand there.     make answer-$(1)"

answer-$(1): $(BUILD)/hunt-$(1)/program
	@for file in $(BUILD)/hunt-$(1)/$(dir $(2))*; do name=$(dir $(2))$$$$(basename $$$$file); \
	    sed '/\/\/ exercise [0-9]: /d' $$$$name | diff -u --label $$$$name --label $$$$file - $$$$file; done; true
endef
$(foreach h,$(HUNTS),$(eval $(call hunt_rules,$(h),$(word 1,$(HUNT_$(h))),$(word 2,$(HUNT_$(h))))))

# The machine code of kernels with and without marks of their phases (head_dim 64 is enough).
$(TESTS)/cubins/%.with.cubin: 05_hopper_async/%.cu $(wildcard 05_hopper_async/*.h common/device/*.h) | $(NVCC) $(BUILD)/.compiler
	@mkdir -p $(@D)
	@echo "  nvcc    $< (with and without marks)"
	@$(NVCC) -std=c++17 -O3 -Icommon -DBUILT_64=1 -arch=sm_90a -cubin $< -o $(@:.with.cubin=.without.cubin) -DNO_PHASES
	@$(NVCC) -std=c++17 -O3 -Icommon -DBUILT_64=1 -arch=sm_90a -cubin $< -o $@
TEST_CUBINS := $(TESTS)/cubins/pingpong.with.cubin $(TESTS)/cubins/intra_warpgroup.with.cubin

# Every exercise as it is given, with each of its parts open alone, and filled: PTX for head_dim 64, in
# the chapter's program. `make test` runs those of the chapters that are cheap, test-long all.
EXERCISES_SOME := 1 2 3
TESTED_EXERCISES := $(if $(filter 64,$(WANTED)),$(filter $(EXERCISES_SOME),$(EXERCISES)))
exercise_parts = $(shell sed -n 's/^\#\# \([1-9]\) · .*/\1/p' $(FOLDER_$(1))/exercise.md)
exercise_programs = $(foreach n,$(1),$(foreach v,given filled $(call exercise_parts,$(n)),$(TESTS)/exercises/$(n)/$(v)/run))
exercise_gencode = $(or $(GENCODE_$(call exercise_kernel,$(1))),$(GENCODE_$(FOLDER_$(1))))
exercise_arch = $(patsubst arch=%,%,$(firstword $(subst $(comma), ,$(word 2,$(call exercise_gencode,$(1))))))

define exercise_test_rules
$(TESTS)/exercises/$(1)/%/exercise.cu: $(BUILD)/exercise $(FOLDER_$(1))/exercise.md \
        $(filter-out %/exercise.cu,$(wildcard $(FOLDER_$(1))/*.cu $(FOLDER_$(1))/*.h))
	@mkdir -p $$(@D)
	@$(BUILD)/exercise write $(FOLDER_$(1)) $$(subst filled,0,$$(subst given,,$$*)) > $$@.part
	@cmp -s $$@.part $$@ && rm $$@.part || mv $$@.part $$@

$(TESTS)/exercises/$(1)/%/exercise.o: $(TESTS)/exercises/$(1)/%/exercise.cu $(BUILD)/.flags $(wildcard common/device/*.h) | $(NVCC) $(BUILD)/.compiler
	@echo "  nvcc    exercise $(1), $$*"
	@$(NVCC) $(filter-out $(BUILT),$(EXERCISE_NVCCFLAGS)) -DBUILT_64=1 -I$(FOLDER_$(1)) \
	    -gencode arch=$(exercise_arch),code=$(exercise_arch) -c $$< -o $$@

$(TESTS)/exercises/$(1)/built.o: common/harness/built.c $(FOLDER_$(1))/exercise.md $(BUILD)/.flags
	@mkdir -p $$(@D)
	@$(CC) $(CFLAGS) -DBUILT_64=1 $(call exercise_defines,$(1)) -c $$< -o $$@

$(TESTS)/exercises/$(1)/%/run: $(TESTS)/exercises/$(1)/%/exercise.o $(TESTS)/exercises/$(1)/built.o \
        $(filter-out $(BUILD)/$(VARIANT)/$(call exercise_kernel,$(1)).o,$(call kernels,$(USES_$(1)))) $(HARNESS_OBJECTS) \
        $(call objects,$(wildcard $(FOLDER_$(1))/*.c)) | $(SOFTGPU)/lib/libcudart.so
	@$(CC) -pthread $$^ -o $$@ -L$(SOFTGPU)/lib -lcudart -lstdc++ -lm -ldl \
	    -Wl,--disable-new-dtags,-rpath,$(abspath $(SOFTGPU)/lib)
endef
$(foreach n,$(EXERCISES),$(eval $(call exercise_test_rules,$(n))))

# Runners stand side by side, so each program runs on one host thread, but where a test says else.
run_suite = echo "== $(1)"; CK_DEFAULT_TIMEOUT=60 SOFTGPU_THREADS=1 TEST_PROGRAMS=$(TESTS)/cuda TEST_LAUNCHER=$(SOFTGPU)/softgpu \
    TEST_CUDART=$(firstword $(wildcard $(TOOLKIT)/lib64/libcudart.so.13) $(TOOLKIT)/lib/libcudart.so.13) \
    TEST_CUBINS=$(TESTS)/cubins TEST_SEEDED="$(SEEDED)" TEST_EXERCISES="$(TESTED_EXERCISES)" TEST_HUNTS="$(TESTED_HUNTS)" TEST_BUILD=$(BUILD)/$(VARIANT) TEST_HEAD_DIMS="$(WANTED)" $(TESTS)/$(1)

# All that `make test` runs.
.PHONY: build-tests
build-tests: softgpu $(foreach n,$(CHAPTERS),$(BUILD)/$(VARIANT)/chapter-$(n)/run) $(BUILD)/fp8_error $(TESTS)/softgpu $(TESTS)/harness $(TESTS)/programs $(TESTS)/chapters $(TESTS)/figures $(TEST_PROGRAMS) $(TIMING_PROGRAMS) $(TEST_CUBINS) $(BROKEN) $(call seeded_programs,$(SEEDED)) $(BUILD)/exercise $(call exercise_programs,$(TESTED_EXERCISES))

test: build-tests
	@sh common/setup/plot_python.sh $(BUILD) >/dev/null || true
	@echo "running the tests: chapters, programs, sanitized units, softgpu, figures, harness; each prints when it ends"
	@TEST_DISASSEMBLER=$$(sh common/setup/disassembler.sh $(BUILD) $(TOOLKIT)) $(MAKE) --no-print-directory run-tests
	@for run in harness figures softgpu programs chapters; do echo "== $$run" && grep '%: Checks' $(TESTS)/$$run.log; done

# Side by side, as many as there are jobs, the longest first. One that fails makes all fail; those
# that run then still end and print.
run-tests: run-chapters run-programs test-sanitized run-softgpu run-figures run-harness
run-harness run-figures run-softgpu run-programs run-chapters: run-%:
	@$(call shown_at_end,$(call run_suite,$*),$*)
.PHONY: run-tests run-harness run-figures run-softgpu run-chapters run-programs

# Runs a command with what it prints in a file, and shows that when it has ended: its status is kept.
shown_at_end = { $(1); } >$(TESTS)/$(2).log 2>&1; status=$$?; cat $(TESTS)/$(2).log; exit $$status

# The timing model against published figures of single instructions and units.
test-figures: softgpu $(TESTS)/figures $(TIMING_PROGRAMS)
	@$(call run_suite,figures)

# The timing model beside published figures: writes common/softgpu/timing/README.md. PARTS="figures
# ablation step locked forward flash2 backward flash1" chooses.
validate: softgpu $(TIMING_PROGRAMS) $(foreach n,3 4 5 7,$(BUILD)/$(VARIANT)/chapter-$(n)/run)
	@python3 common/plot/validate.py $(BUILD)/$(VARIANT) $(BUILD) $(PARTS)

FUZZ_SEEDS := $(addprefix $(TESTS)/,calls.ptx print.ptx variables.ptx)

# The full matrix of a chapter, or softgpu's (long fuzzing, every program under many schedules).
# What a chapter passed is noted in build/tests, so that a stopped run goes on where it was.
LONG_CHAPTERS := 1 2 3 4 5 6 7 8 9
LONG_RUNS := $(if $(CHAPTER),$(CHAPTER),softgpu edges exercises $(LONG_CHAPTERS))
test-long: $(addprefix test-long-,$(LONG_RUNS))
$(LONG_CHAPTERS:%=test-long-%): test-long-%: softgpu $(BUILD)/$(VARIANT)/chapter-%/run $(TESTS)/long
	@echo "== chapter $*, the full matrix"
	@TEST_BUILD=$(BUILD)/$(VARIANT) TEST_HEAD_DIMS="$(WANTED)" TEST_CHAPTER=$* TEST_STATE=$(TESTS)/passed-chapter-$* $(TESTS)/long
test-long-6: table-fp8
# What `make test` asks of the chapters fewer times than could be.
test-long-edges: softgpu $(foreach n,$(CHAPTERS),$(BUILD)/$(VARIANT)/chapter-$(n)/run) $(TESTS)/chapters $(TESTS)/programs $(TEST_PROGRAMS)
	@export TEST_FULL=1; $(call run_suite,chapters) backward sizes fp8
	@export TEST_FULL=1; $(call run_suite,programs) runs
test-long-softgpu: SEEDED := $(SEEDED_SMALL) $(if $(filter 64,$(WANTED)),$(SEEDED_UNITS))
test-long-softgpu: softgpu $(FUZZ_SEEDS) $(TESTS)/softgpu $(TESTS)/programs $(TEST_PROGRAMS) \
        $(call seeded_programs,$(SEEDED_SMALL) $(if $(filter 64,$(WANTED)),$(SEEDED_UNITS))) \
        $(TESTS)/fuzz_ptx $(TESTS)/fuzz_fatbin $(TESTS)/fuzz_npy
	@$(call run_suite,softgpu)
	@export TEST_SCHEDULES=50; $(call run_suite,programs) programs seeded_bugs
	@$(TESTS)/fuzz_ptx 300000 2 $(FUZZ_SEEDS)
	@$(TESTS)/fuzz_fatbin 1000000 2
	@$(TESTS)/fuzz_npy 1000000 2
test-long-exercises: TESTED_EXERCISES := $(EXERCISES)
test-long-exercises: TESTED_HUNTS := $(HUNTS)
test-long-exercises: softgpu $(BUILD)/exercise $(TESTS)/programs $(call exercise_programs,$(EXERCISES)) $(HUNTS:%=$(BUILD)/hunt-%/run)
	@$(call run_suite,programs) exercises
.PHONY: test-long-softgpu test-long-edges test-long-exercises $(LONG_CHAPTERS:%=test-long-%)

# The same units and the fuzzers under AddressSanitizer and UndefinedBehaviorSanitizer.
SANITIZED := BUILD=$(BUILD)/sanitized NVCC='$(NVCC)' \
    OPT='-O1 -march=native -fsanitize=address$(comma)undefined -fno-sanitize-recover=all -fno-omit-frame-pointer' FAST=-fno-math-errno
test-sanitized:
	@$(MAKE) --no-print-directory $(SANITIZED) run-sanitized

$(TESTS)/%.ptx: tests/programs/%.cu | $(NVCC) $(BUILD)/.compiler
	@mkdir -p $(@D)
	@$(NVCC) -std=c++17 --extended-lambda -lineinfo -arch=compute_80 -ptx $< -o $@

run-sanitized: $(FUZZ_SEEDS) $(TESTS)/softgpu $(TESTS)/harness $(TESTS)/fuzz_ptx $(TESTS)/fuzz_fatbin $(TESTS)/fuzz_npy
	@$(call shown_at_end,$(run_sanitized),sanitized)
run_sanitized = echo "== sanitized: softgpu, harness, fuzzers" && export CK_DEFAULT_TIMEOUT=60 ASAN_OPTIONS=detect_leaks=0 && \
    $(TESTS)/softgpu && $(TESTS)/harness && $(TESTS)/fuzz_ptx 3000 1 $(FUZZ_SEEDS) && \
    $(TESTS)/fuzz_fatbin 3000 1 && $(TESTS)/fuzz_npy 3000 1

# How fast the emulator is: chapter 1's kernels, and the same attention in plain C; and what the
# checks cost.
$(TESTS)/plain_attention: tests/bench/plain_attention.c $(BUILD)/.flags
	@mkdir -p $(@D)
	@echo "  cc      $<"
	@$(CC) $(CFLAGS) -O3 $< -o $@ -lm

bench-softgpu: $(BUILD)/$(VARIANT)/chapter-1/run $(BUILD)/$(VARIANT)/chapter-5/run $(SOFTGPU)/lib/libcudart.so $(TESTS)/plain_attention
	@sh tests/bench/bench.sh $(BUILD)/$(VARIANT)/chapter-1/run $(TESTS)/plain_attention $(BUILD)/$(VARIANT)/chapter-5/run

format:
	@command -v clang-format >/dev/null || { echo "clang-format is missing; install the package clang-format" >&2; exit 1; }
	clang-format -i $$(git ls-files '*.c' '*.h' '*.cu')

check-format:
	@command -v clang-format >/dev/null || { echo "clang-format is missing; install the package clang-format" >&2; exit 1; }
	clang-format --dry-run -Werror $$(git ls-files '*.c' '*.h' '*.cu')

clean:
	rm -rf $(BUILD) results run

-include $(shell find $(BUILD) -name '*.d' 2>/dev/null)
