// Calls: who is called, and how parameters get from the caller's frame into the callee's and back.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/lowering.h"

static const struct {
    const char *name;
    Handler *run;
} builtins[] = {
    {"vprintf", builtin_vprintf},
    {"malloc", builtin_malloc},
    {"free", builtin_free},
    {"__assertfail", builtin_assertfail},
};

// The definition that a symbol means; NULL if the program has none.
static PtxFunction *resolve_function(Lowering *l, const PtxOperand *o) {
    if (o->kind != OPERAND_SYMBOL) return NULL;
    PtxFunction *f = l->linker->function(l->linker, l->body->ptx->module, o->name);
    if (!f) f = o->function;
    return f && !f->is_declaration ? f : NULL;
}

// Adds a callee to the kernel, and the call to the running function's list.
static Body *add_callee(Lowering *l, PtxFunction *f) {
    int before = l->body_count;
    Body *callee = body_of(l, f), *caller = l->body;
    int index = (int)*map_find(&l->body_of, map_key(f));
    if (!l->surveying) return callee;
    for (int i = 0; i < caller->callee_count && index < before; i++)
        if (caller->callees[i] == index) return callee;
    caller->callees = lowering_grow(caller->callees, (size_t)caller->callee_count,
                                    &caller->callee_capacity, sizeof *caller->callees);
    caller->callees[caller->callee_count++] = index;
    return callee;
}

// The function being called: adds it to the kernel if it is new.
const CodeFunction *callee(Lowering *l, const PtxOperand *o, const char **why) {
    static const CodeFunction unknown_yet;
    PtxFunction *f = resolve_function(l, o);
    if (!f) {
        *why = o->kind == OPERAND_SYMBOL
                   ? refusal(l, "no module of this program defines the function '%s'", o->name)
                   : "the callee is not a function's name";
        return NULL;
    }
    Body *body = add_callee(l, f);
    return l->surveying ? &unknown_yet : body->code;
}

static void visit_taken(void *context, PtxFunction *f) {
    if (!f->is_declaration && !f->is_entry) body_of(context, f);
}

// Lowers every function whose address is taken (for indirect calls) and their frames.
void callee_any(Lowering *l) {
    l->body->calls_any = true;
    if (l->surveying) l->linker->each_taken(l->linker, visit_taken, l);
}

// Where an argument or result lies in the caller's frame. size 0 on failure.
static struct CallArgument caller_place(Lowering *l, const PtxOperand *o, bool write,
                                        const char **why) {
    struct CallArgument place = {0};
    if (o->kind == OPERAND_SYMBOL) {
        const Region *r = region_of(l, o->variable);
        if (r)
            place = (struct CallArgument){r->offset, r->stride, 0, 0, (uint32_t)r->variable->size};
    } else if (o->kind == OPERAND_REGISTER && operand_width(l, o) > 1) {
        int width = operand_width(l, o);
        Row row = write ? destination_row(l, o, width, why) : source_row(l, o, width, why);
        place = (struct CallArgument){row, (uint32_t)width / 8, 0, 0, (uint32_t)width / 8};
    }
    if (!place.size)
        *why = refusal(l, "the argument '%s' of a call is neither a .param variable nor a register",
                       o->name ? o->name : "?");
    return place;
}

// Checks that what is passed has the size that the callee (or prototype) declares.
static const char *check_size(Lowering *l, const PtxFunction *f, const PtxVariable *wanted,
                              const struct CallArgument *place, int number) {
    if (wanted->space == SPACE_REG)
        return refusal(l, "'%s' takes parameters in registers", f->name ? f->name : "a prototype");
    if (wanted->size == place->size) return NULL;
    return refusal(l, "%s %d of a call is %u bytes where '%s' has %llu",
                   number ? "argument" : "result", number ? number : 1, place->size,
                   f->name ? f->name : "the prototype", (unsigned long long)wanted->size);
}

// Fills arguments and result. `f` is the callee or the prototype, NULL for a builtin.
static const char *bind(Lowering *l, const PtxFunction *f, const PtxOperand *results,
                        const PtxOperand *arguments, Call *call) {
    const char *why = NULL;
    int result_count = results ? results->count : 0, count = arguments ? arguments->count : 0;
    if (f && (f->return_count != result_count || f->param_count != count))
        return refusal(
            l, "the call passes %d arguments and takes %d results, but '%s' has %d and %d", count,
            result_count, f->name ? f->name : "the prototype", f->param_count, f->return_count);
    if (result_count > 1) return "a call with more than one result";

    uint32_t offset = 0; // in the callee's frame: returns, then parameters (lay_out_own_regions)
    if (result_count) {
        struct CallArgument place = caller_place(l, &results->elements[0], true, &why);
        if (!place.size) return why;
        if (f && (why = check_size(l, f, f->returns[0], &place, 0))) return why;
        call->result = (struct CallArgument){.from = 0,
                                             .from_stride = region_stride(place.size),
                                             .to = place.from,
                                             .to_stride = place.from_stride,
                                             .size = place.size};
        offset = 32 * call->result.from_stride;
    }
    call->argument_count = count;
    call->arguments = kernel_alloc(l, sizeof *call->arguments * (size_t)(count + 1));
    for (int i = 0; i < count; i++) {
        struct CallArgument place = caller_place(l, &arguments->elements[i], false, &why);
        if (!place.size) return why;
        if (f && (why = check_size(l, f, f->params[i], &place, i + 1))) return why;
        place.to = offset;
        place.to_stride = region_stride(place.size);
        offset += 32 * place.to_stride;
        call->arguments[i] = place;
    }
    return NULL;
}

// call (results), callee, (arguments), prototype;
const char *lower_call(Lowering *l, const Match *m, Insn *i) {
    const PtxInstruction *p = m->ptx;
    const PtxOperand *results = NULL, *arguments = NULL;
    int o = 0;
    if (o < p->operand_count && p->operands[o].kind == OPERAND_LIST) results = &p->operands[o++];
    if (o >= p->operand_count) return "the call names no function";
    const PtxOperand *target = &p->operands[o++];
    if (o < p->operand_count && p->operands[o].kind == OPERAND_LIST) arguments = &p->operands[o];

    Call *call = kernel_alloc(l, sizeof *call);
    i->extra = call;
    const char *why = NULL;
    if (target->kind == OPERAND_REGISTER) {
        if (!p->prototype) return "an indirect call without a .callprototype";
        i->a = source_row(l, target, 64, &why);
        if (i->a == ROW_NONE) return why;
        callee_any(l);
        return bind(l, p->prototype, results, arguments, call);
    }
    PtxFunction *f = resolve_function(l, target);
    if (f) {
        call->callee = callee(l, target, &why);
        return call->callee ? bind(l, f, results, arguments, call) : why;
    }
    for (size_t b = 0; b < sizeof builtins / sizeof *builtins; b++) {
        if (target->kind != OPERAND_SYMBOL || strcmp(target->name, builtins[b].name)) continue;
        call->builtin = builtins[b].run;
        return bind(l, NULL, results, arguments, call);
    }
    return refusal(l, "no module of this program defines the function '%s'",
                   target->name ? target->name : "?");
}
