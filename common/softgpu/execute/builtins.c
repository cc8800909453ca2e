// The functions that CUDA's device runtime provides to kernels: vprintf, malloc, free,
// __assertfail.
//
// They are called like functions: arguments lie in the caller's frame, lane-major, where Call
// says. They touch what all SMs share, so they run in the serial phase; lanes go in ascending
// order.
#include <stdio.h>
#include <string.h>

#include "softgpu/check/definedness.h"
#include "softgpu/execute/memory_access.h"

enum {
    TEXT_LIMIT = 4096
}; // longest string that is read from device memory, and longest output item

// Argument `k` of one lane; shorter ones are zero-extended.
static uint64_t argument(const Warp *w, const Call *call, int k, int lane) {
    uint64_t value = 0;
    if (k >= call->argument_count) return 0;
    const struct CallArgument *a = &call->arguments[k];
    memcpy(&value, w->frame + a->from + (size_t)lane * a->from_stride, a->size > 8 ? 8 : a->size);
    return value;
}

static void set_result(Warp *w, const Call *call, int lane, uint64_t value) {
    const struct CallArgument *r = &call->result;
    if (r->size)
        memcpy(w->frame + r->to + (size_t)lane * r->to_stride, &value, r->size > 8 ? 8 : r->size);
}

// Copies a string from device memory; cut at the buffer's end. false if it can't be read.
static bool read_string(const Warp *w, int lane, uint64_t address, char *text, size_t size) {
    for (size_t k = 0; k + 1 < size; k++) {
        const uint8_t *byte = peek_generic(w, lane, address + k, 1);
        if (!byte) return false;
        text[k] = (char)*byte;
        if (!text[k]) return true;
    }
    text[size - 1] = 0;
    return true;
}

// ---- printf

// The packed arguments of one printf call, each at a multiple of its size.
typedef struct {
    Warp *w;
    const Insn *insn;
    int lane;
    uint64_t address; // of the next argument
    int taken;
    bool broken; // an argument couldn't be read
} Arguments;

static uint64_t next_argument(Arguments *a, unsigned size) {
    uint64_t value = 0;
    a->address = (a->address + size - 1) & ~(uint64_t)(size - 1);
    const uint8_t *place = peek_generic(a->w, a->lane, a->address, size);
    if (!place) {
        a->broken = true;
        return 0;
    }
    memcpy(&value, place, size);
    if (a->address - LOCAL_WINDOW < LOCAL_WINDOW_SIZE)
        definedness_printed(a->w, a->insn, a->lane, a->address - LOCAL_WINDOW, size);
    a->address += size;
    a->taken++;
    return value;
}

// One conversion: the text of `specification` up to and without the length modifiers.
typedef struct {
    char flags[32]; // "%-08.3": everything before the length, '*' replaced by its value
    unsigned size;  // bytes of an integer argument
    int shorts;     // h: 1, hh: 2; narrows what is printed, the argument is still an int
    char conversion;
} Conversion;

// Reads a conversion that begins after '%'. NULL if it is none.
static const char *read_conversion(const char *s, Arguments *a, Conversion *c) {
    size_t used = 1;
    c->flags[0] = '%';
    c->size = 4;
    for (; *s && strchr("-+ #0123456789.*", *s); s++) {
        if (used + 14 > sizeof c->flags) return NULL;
        if (*s == '*')
            used += (size_t)sprintf(c->flags + used, "%d", (int)next_argument(a, 4));
        else
            c->flags[used++] = *s;
    }
    c->flags[used] = 0;
    c->shorts = 0;
    for (; *s && strchr("hljztL", *s); s++) {
        if (*s == 'h')
            c->shorts++;
        else if (*s != 'L')
            c->size = 8;
    }
    c->conversion = *s;
    return *s ? s + 1 : NULL;
}

// Prints one conversion's argument.
static void print_argument(Arguments *a, const Conversion *c) {
    char spec[40];
    if (strchr("diuxXo", c->conversion)) {
        uint64_t value = next_argument(a, c->size);
        bool is_signed = c->conversion == 'd' || c->conversion == 'i';
        if (c->shorts > 1)
            value = is_signed ? (uint64_t)(int8_t)value : (uint8_t)value;
        else if (c->shorts)
            value = is_signed ? (uint64_t)(int16_t)value : (uint16_t)value;
        else if (c->size == 4 && is_signed)
            value = (uint64_t)(int64_t)(int32_t)value;
        snprintf(spec, sizeof spec, "%sll%c", c->flags, c->conversion);
        printf(spec, (unsigned long long)value);
    } else if (strchr("fFeEgGaA", c->conversion)) {
        uint64_t bits = next_argument(a, 8);
        double value;
        memcpy(&value, &bits, 8);
        snprintf(spec, sizeof spec, "%s%c", c->flags, c->conversion);
        printf(spec, value);
    } else if (c->conversion == 'c') {
        snprintf(spec, sizeof spec, "%sc", c->flags);
        printf(spec, (int)next_argument(a, 4));
    } else if (c->conversion == 'p') {
        snprintf(spec, sizeof spec, "%sp", c->flags);
        printf(spec, (void *)(uintptr_t)next_argument(a, 8));
    } else if (c->conversion == 's') {
        char text[TEXT_LIMIT];
        uint64_t address = next_argument(a, 8);
        if (!address)
            snprintf(text, sizeof text, "(null)");
        else if (!read_string(a->w, a->lane, address, text, sizeof text))
            a->broken = true;
        snprintf(spec, sizeof spec, "%ss", c->flags);
        if (!a->broken) printf(spec, text);
    } else if (c->conversion == 'n') {
        next_argument(a, 8); // nothing is stored: a kernel's printf runs later than the kernel
    }
}

// Prints for one lane. Answers what CUDA's printf does: the number of arguments, -1 without a
// format.
static int print_lane(Arguments *a, uint64_t format_address) {
    static char format[1 << 16]; // the serial phase is one thread
    if (!format_address) return -1;
    if (!read_string(a->w, a->lane, format_address, format, sizeof format)) {
        a->broken = true;
        return -2;
    }
    for (const char *s = format; *s && !a->broken;) {
        size_t plain = strcspn(s, "%");
        fwrite(s, 1, plain, stdout);
        s += plain;
        if (!*s) break;
        if (s[1] == '%') {
            putchar('%');
            s += 2;
            continue;
        }
        Conversion c;
        const char *end = read_conversion(s + 1, a, &c);
        if (!end || !strchr("diuxXofFeEgGaAcpsn", c.conversion)) {
            putchar('%'); // no conversion: printed as it stands
            s++;
            continue;
        }
        print_argument(a, &c);
        s = end;
    }
    return a->taken;
}

Flow builtin_vprintf(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    const Call *call = i->extra;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        Arguments a = {.w = w, .insn = i, .lane = lane, .address = argument(w, call, 1, lane)};
        int result = print_lane(&a, argument(w, call, 0, lane));
        if (a.broken) {
            finding(w, i, lane, FINDING_OUT_OF_BOUNDS,
                    "Check that %s arguments are strings in device memory, and that there are as "
                    "many arguments as the format asks for.",
                    "printf can't read its format or one of its arguments");
            return FLOW_FAULT;
        }
        set_result(w, call, lane, (uint64_t)(int64_t)result);
    }
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- malloc and free

Flow builtin_malloc(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    const Call *call = i->extra;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t size = argument(w, call, 0, lane);
        uint64_t address = size ? global_alloc(w->sm->gpu->memory, size, MEMORY_HEAP, NULL) : 0;
        set_result(w, call, lane, address);
    }
    w->sm->changes++;
    return FLOW_NEXT;
}

Flow builtin_free(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    const Call *call = i->extra;
    struct GlobalMemory *m = w->sm->gpu->memory;
    for (uint32_t rest = mask; rest; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        uint64_t address = argument(w, call, 0, lane);
        if (!address) continue;
        const Allocation *a = global_find(m, address);
        bool is_block = a && !a->freed && a->kind == MEMORY_HEAP && a->address == address;
        if (is_block && global_free(m, address)) continue;
        finding(w, i, lane, FINDING_USE_AFTER_FREE,
                "Free each block once, and only what malloc or new in a kernel returned.",
                "frees 0x%llx, which is no block that malloc in a kernel returned, or was freed "
                "before",
                (unsigned long long)address);
        return FLOW_FAULT;
    }
    w->sm->changes++;
    return FLOW_NEXT;
}

// ---- assert

// __assertfail(message, file, line, function, character size)
Flow builtin_assertfail(Warp *w, const Insn *i, uint32_t mask) {
    if (must_defer(w)) return FLOW_DEFER;
    const Call *call = i->extra;
    int lane = __builtin_ctz(mask);
    char message[1024], file[1024], function[1024];
    if (!read_string(w, lane, argument(w, call, 0, lane), message, sizeof message))
        strcpy(message, "?");
    if (!read_string(w, lane, argument(w, call, 1, lane), file, sizeof file)) strcpy(file, "?");
    if (!read_string(w, lane, argument(w, call, 3, lane), function, sizeof function))
        strcpy(function, "?");
    finding(w, i, lane, FINDING_ASSERT, NULL, "%s:%u: %s: assertion `%s' failed", file,
            (unsigned)argument(w, call, 2, lane), function, message);
    return FLOW_FAULT;
}
