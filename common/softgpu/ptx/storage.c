// Where variables live: .param storage in frames, .local storage of threads, shared memory.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/machine.h"
#include "softgpu/ptx/lowering.h"

static uint64_t align_up(uint64_t value, uint64_t align) {
    return align > 1 ? (value + align - 1) / align * align : value;
}

// ---- what symbols mean

// The variable that a symbol means, across modules; NULL if no module defines it.
const PtxVariable *resolve_variable(Lowering *l, const PtxOperand *symbol) {
    const PtxVariable *own = symbol->variable;
    if (own && own->owner) return own;
    const PtxVariable *linked = l->linker->variable(l->linker, l->body->ptx->module, symbol->name);
    if (linked) return linked;
    // All extern shared arrays are the dynamic shared memory, which nobody defines.
    return own && own->is_extern && own->space == SPACE_SHARED ? own : NULL;
}

// Address of a variable in its own space; see form.h.
bool symbol_address(Lowering *l, const PtxOperand *o, uint64_t *address, Space *space) {
    int64_t offset = 0;
    if (o->kind == OPERAND_ADDRESS) {
        if (o->count < 1) return false;
        offset = o->offset;
        o = o->elements;
    }
    if (o->kind != OPERAND_SYMBOL) return false;
    offset += o->offset;
    const PtxVariable *v = resolve_variable(l, o);
    if (!v) return false;

    const uint64_t *known = NULL;
    uint64_t base = 0;
    switch (v->space) {
    case SPACE_SHARED:
        note_shared(l, v);
        known = map_find(&l->shared_address, map_key(v));
        break;
    case SPACE_LOCAL: known = map_find(&l->body->locals, map_key(v)); break;
    case SPACE_PARAM: known = map_find(&l->entry_params, map_key(v)); break;
    case SPACE_GLOBAL:
    case SPACE_CONST:
        base = l->linker->address(l->linker, v);
        if (base) known = &base;
        break;
    default: break;
    }
    if (!known) return false;
    *address = *known + (uint64_t)offset;
    *space = v->space;
    return true;
}

// ---- .param storage

uint32_t region_stride(uint64_t size) {
    return size ? (uint32_t)align_up(size, 16) : 16;
}

static Region *add_region(Body *body, const PtxVariable *v) {
    body->regions = lowering_grow(body->regions, (size_t)body->region_count, &body->region_capacity,
                                  sizeof *body->regions);
    map_set(&body->region_of, map_key(v), (uint64_t)body->region_count);
    Region *r = &body->regions[body->region_count++];
    *r = (Region){.variable = v, .stride = region_stride(v->size), .last = -1};
    return r;
}

// The region of a .param variable in the running function's frame; NULL if it has none there.
Region *region_of(Lowering *l, const PtxVariable *v) {
    if (!v || v->space != SPACE_PARAM || map_find(&l->entry_params, map_key(v))) return NULL;
    Body *body = l->body;
    const uint64_t *known = map_find(&body->region_of, map_key(v));
    Region *r = known ? &body->regions[*known] : NULL;
    if (!r) {
        if (!l->surveying) return NULL;
        r = add_region(body, v);
        r->first = l->instruction;
    }
    if (l->instruction < r->first) r->first = l->instruction;
    if (l->instruction > r->last) r->last = l->instruction;
    return r;
}

// .param storage of the current function (not of an entry): frame offset and lane stride.
bool param_storage(Lowering *l, const PtxOperand *address, uint32_t *offset, uint32_t *stride) {
    int64_t byte = 0;
    const PtxOperand *o = address;
    if (o->kind == OPERAND_ADDRESS) {
        if (o->count < 1) return false;
        byte = o->offset;
        o = o->elements;
    }
    if (o->kind != OPERAND_SYMBOL) return false;
    byte += o->offset;
    const Region *r = region_of(l, o->variable);
    if (!r || byte < 0 || (uint64_t)byte >= r->stride) return false;
    *offset = r->offset + (uint32_t)byte;
    *stride = r->stride;
    return true;
}

// Lays out returns and parameters of a function from frame offset 0.
void lay_out_own_regions(Lowering *l, Body *body) {
    (void)l;
    const PtxFunction *f = body->ptx;
    uint32_t offset = 0;
    for (int i = 0; i < f->return_count + f->param_count; i++) {
        const PtxVariable *v = i < f->return_count ? f->returns[i] : f->params[i - f->return_count];
        Region *r = add_region(body, v);
        r->offset = offset;
        offset += 32 * r->stride;
    }
    body->own_regions = body->region_count;
    body->frame_end = offset;
}

// The parameter block of the kernel: each parameter at the next multiple of its alignment.
void lay_out_entry_params(Lowering *l, const PtxFunction *entry) {
    Kernel *k = l->kernel;
    uint64_t offset = 0;
    k->param_count = entry->param_count;
    k->params = arena_alloc(l->arena, sizeof *k->params * (size_t)(entry->param_count + 1));
    for (int i = 0; i < entry->param_count; i++) {
        const PtxVariable *v = entry->params[i];
        offset = align_up(offset, v->align ? v->align : type_size(v->type));
        k->params[i] = (struct KernelParam){(uint32_t)offset, (uint32_t)v->size};
        map_set(&l->entry_params, map_key(v), offset);
        offset += v->size;
    }
    k->param_size = (uint32_t)offset;
}

// Can a call argument's place be used again by a later call? Only if all that touches it is one
// straight run that begins by writing it.
static bool is_brief(const Body *body, const Region *r) {
    if (r->last < r->first) return false;
    if (body->graph->block_of[r->first] != body->graph->block_of[r->last]) return false;
    const PtxInstruction *first = &body->ptx->instructions[r->first];
    return first->guard < 0 && (!strcmp(first->opcode, "st") || !strcmp(first->opcode, "call"));
}

static int by_first(const void *a, const void *b) {
    const Region *x = *(Region *const *)a, *y = *(Region *const *)b;
    return x->first != y->first ? (x->first < y->first ? -1 : 1) : (x < y ? -1 : x > y);
}

// Gives the call arguments of a body their places behind its rows. Regions of different strides
// never share a place, so that diverged lanes can't disturb each other.
void lay_out_call_regions(Body *body) {
    struct Place {
        uint32_t offset, stride;
        int last;
    } *places = NULL;
    int place_count = 0, capacity = 0, count = body->region_count - body->own_regions;
    uint32_t end = body->rows.end;
    Region **order = calloc((size_t)count + 1, sizeof *order);
    if (!order) {
        fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
        exit(2);
    }
    for (int i = 0; i < count; i++) order[i] = &body->regions[body->own_regions + i];
    qsort(order, (size_t)count, sizeof *order, by_first);
    for (int i = 0; i < count; i++) {
        Region *r = order[i];
        bool brief = is_brief(body, r);
        int p = 0;
        while (brief && p < place_count &&
               (places[p].stride != r->stride || places[p].last >= r->first))
            p++;
        if (!brief || p == place_count) {
            places = lowering_grow(places, (size_t)place_count, &capacity, sizeof *places);
            p = place_count++;
            places[p] = (struct Place){.offset = end, .stride = r->stride};
            end += 32 * r->stride;
        }
        places[p].last = brief ? r->last : INT32_MAX;
        r->offset = places[p].offset;
    }
    body->frame_end = end;
    free(order);
    free(places);
}

// ---- .local storage

void lay_out_locals(Body *body) {
    uint64_t offset = 0;
    for (int i = 0; i < body->ptx->variable_count; i++) {
        const PtxVariable *v = body->ptx->variables[i];
        if (v->space != SPACE_LOCAL) continue;
        offset = align_up(offset, v->align);
        map_set(&body->locals, map_key(v), offset);
        offset += v->size;
    }
    body->local_size = (uint32_t)align_up(offset, 16);
}

// The bytes of .local storage of a body and the deepest chain of calls from it.
static uint64_t deepest(Lowering *l, Body *body) {
    if (body->walk == DONE) return body->deepest;
    if (body->walk == ON_PATH) {
        l->kernel->recursive = true;
        return 0;
    }
    body->walk = ON_PATH;
    if (body->calls_any) l->kernel->recursive = true;
    uint64_t below = 0;
    for (int i = 0; i < body->callee_count; i++) {
        uint64_t here = deepest(l, l->bodies[body->callees[i]]);
        if (here > below) below = here;
    }
    body->deepest = body->local_size + below;
    body->walk = DONE;
    return body->deepest;
}

// Sets Kernel.local_size and .recursive from the call graph.
void measure_stack(Lowering *l) {
    l->kernel->local_size = (uint32_t)deepest(l, l->bodies[0]);
}

// ---- shared memory

// Notes a shared variable, whose address is known after the survey.
void note_shared(Lowering *l, const PtxVariable *v) {
    if (map_find(&l->shared_address, map_key(v))) return;
    map_set(&l->shared_address, map_key(v), 0);
    l->shared =
        lowering_grow(l->shared, (size_t)l->shared_count, &l->shared_capacity, sizeof *l->shared);
    l->shared[l->shared_count++] = v;
}

// Moves an address to the next multiple of `align` that is not a multiple of twice that.
static uint64_t align_no_better(uint64_t address, uint64_t align) {
    address = align_up(address, align);
    return address / align % 2 ? address : address + align;
}

// Places shared variables in the order in which the survey met them, and dynamic shared memory
// behind them. Schedules other than 0 give them the alignment that they declare and no more, unless
// the usual one is asked for.
void lay_out_shared(Lowering *l) {
    Kernel *k = l->kernel;
    bool usual = l->linker->usual_alignment;
    uint64_t strictest = usual ? SHARED_RESERVED : 16, dynamic = 1;
    for (int i = 0; i < l->shared_count; i++) {
        const PtxVariable *v = l->shared[i];
        if (v->align > strictest) strictest = v->align;
        if (v->is_extern && v->align > dynamic) dynamic = v->align;
    }
    uint64_t base = align_up(SHARED_RESERVED, strictest);
    if (l->linker->schedule)
        base = align_no_better(SHARED_RESERVED, strictest) +
               2 * strictest * (l->linker->schedule * 0x9e3779b97f4a7c15ull >> 61);

    uint64_t address = base;
    for (int i = 0; i < l->shared_count; i++) {
        const PtxVariable *v = l->shared[i];
        if (v->is_extern) continue;
        address = align_up(address, v->align);
        map_set(&l->shared_address, map_key(v), address);
        address += v->size;
    }
    k->shared_base = (uint32_t)base;
    k->shared_static = (uint32_t)(address - base);
    if (dynamic == 1)
        address = align_up(address, 16);
    else if (l->linker->schedule && !usual)
        address = align_no_better(address, dynamic);
    else
        address = align_up(address, dynamic);
    k->shared_dynamic = (uint32_t)address;
    for (int i = 0; i < l->shared_count; i++)
        if (l->shared[i]->is_extern) map_set(&l->shared_address, map_key(l->shared[i]), address);
}
