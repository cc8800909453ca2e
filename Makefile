# FlashAttention, chapter by chapter. `make` prints the targets; README.md says the rest.

BUILD := build
CC ?= gcc
OPT ?= -O3 -march=native
CFLAGS := -std=gnu11 $(OPT) -g -Wall -Wextra -Werror -Icommon -pthread -fPIC -MMD -MP
SHELL := /bin/sh
MAKEFLAGS += --no-builtin-rules
.DELETE_ON_ERROR:
.SECONDARY:
.DEFAULT_GOAL := help

CHAPTERS := $(sort $(wildcard 0[1-9]_*))
NVCC := $(shell sh common/setup/nvcc.sh $(BUILD))
TOOLKIT = $(abspath $(dir $(NVCC))..)
CUDA_INCLUDE = -isystem $(firstword $(wildcard $(TOOLKIT)/targets/x86_64-linux/include) $(TOOLKIT)/include)

# head_dims to build: a list, or "all"
HEAD_DIMS ?= 64 128
ifeq ($(HEAD_DIMS),all)
override HEAD_DIMS := 64 96 128 192 256
endif
empty :=
space := $(empty) $(empty)
VARIANT := d$(subst $(space),-,$(strip $(HEAD_DIMS)))
BUILT := $(foreach d,$(HEAD_DIMS),-DBUILT_$(d)=1)

# ---- what a chapter is built from: its own kernels, and those of the chapters it compares with
USES_1 := 01_naive
USES_2 := 01_naive 02_tiled
USES_3 := 01_naive 02_tiled 03_online_softmax
PORTABLE := -gencode arch=compute_80,code=[compute_80,sm_80,sm_90]
GENCODE_01_naive := $(PORTABLE)
GENCODE_02_tiled := $(PORTABLE)
GENCODE_03_online_softmax := $(PORTABLE)

NVCCFLAGS := -std=c++17 -O3 -lineinfo --no-compress -Icommon -I. $(BUILT) \
    -Werror all-warnings -Xptxas -warn-spills,-Werror -Xcompiler -fPIC,-Wall

# ---- softgpu

SOFTGPU := $(BUILD)/softgpu
SOFTGPU_CORE := $(filter-out common/softgpu/api/%, $(wildcard common/softgpu/*.c common/softgpu/*/*.c))
SOFTGPU_API := $(filter-out %/launcher.c %/libcuda.c, $(wildcard common/softgpu/api/*.c))
HARNESS := $(wildcard common/harness/*.c)
objects = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
CORE_OBJECTS := $(call objects,$(SOFTGPU_CORE))
API_OBJECTS := $(call objects,$(SOFTGPU_API))
