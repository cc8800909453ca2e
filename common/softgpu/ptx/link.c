// Links the PTX modules of a program (link.h).
//
// Invariant: a name that is visible between modules has one canonical definition, in `variables` or
// `functions`; whatever a module's own extern, weak or duplicate declaration of the name means is
// that. Only canonical variables are placed, only canonical functions have ids.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/machine/machine.h"
#include "softgpu/ptx/link.h"
#include "softgpu/ptx/map.h"

// A chained hash table from names to definitions; later ones of a name stand in front.
typedef struct Name {
    const char *name;
    void *definition;
    struct Name *next;
} Name;

enum { NAME_BUCKETS = 4096 };

struct Program {
    Linker linker; // first: a Linker * is a Program *
    PtxModule **modules;
    int module_count;
    struct GlobalMemory *memory;
    Name *variables[NAME_BUCKETS]; // canonical: visible or weak
    Name *functions[NAME_BUCKETS];
    Name *all_variables[NAME_BUCKETS]; // every definition, the first of a name in front
    Name *all_functions[NAME_BUCKETS];
    Map addresses; // PtxVariable → device address
    Map ids;       // PtxFunction → id
    uint64_t next_id;
    PtxFunction **taken; // functions whose address is taken, once collected
    int taken_count, taken_capacity;
    bool taken_known;
    Map is_taken;
};

static void *must(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory while linking PTX\n");
    exit(2);
}

static uint32_t hash_name(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 16777619u;
    return (h ^ (h >> 15)) % NAME_BUCKETS;
}

static Name *find_name(Name *const *table, const char *name) {
    Name *n = table[hash_name(name)];
    while (n && strcmp(n->name, name)) n = n->next;
    return n;
}

static void add_name(Name **table, const char *name, void *definition) {
    Name *n = must(malloc(sizeof *n));
    uint32_t bucket = hash_name(name);
    *n = (Name){name, definition, table[bucket]};
    table[bucket] = n;
}

static void free_names(Name **table) {
    for (int b = 0; b < NAME_BUCKETS; b++)
        for (Name *n = table[b], *next; n; n = next) {
            next = n->next;
            free(n);
        }
}

static bool fail(PtxError *error, const char *format, const char *name) {
    error->line = 0;
    snprintf(error->message, sizeof error->message, format, name);
    return false;
}

// ---- names

static bool exported(const PtxVariable *v) {
    return v->is_visible || v->is_weak;
}
static bool function_exported(const PtxFunction *f) {
    return f->is_visible || f->is_weak;
}

// The definition that `name` means when `module` says it.
static const PtxVariable *find_variable(Linker *linker, const PtxModule *module, const char *name) {
    const Program *p = (const Program *)linker;
    const PtxVariable *own = ptx_find_variable(module, name);
    if (own && !own->is_extern && !exported(own)) return own;
    const Name *n = find_name(p->variables, name);
    if (n) return n->definition;
    return own && !own->is_extern ? own : NULL;
}

static PtxFunction *find_function(Linker *linker, const PtxModule *module, const char *name) {
    const Program *p = (const Program *)linker;
    PtxFunction *own = ptx_find_function(module, name);
    if (own && !own->is_declaration && !function_exported(own)) return own;
    const Name *n = find_name(p->functions, name);
    if (n) return n->definition;
    return own && !own->is_declaration ? own : NULL;
}

static uint64_t address_of(Linker *linker, const PtxVariable *v) {
    const Program *p = (const Program *)linker;
    const uint64_t *known = map_find(&p->addresses, map_key(v));
    return known ? *known : 0;
}

// Ids are given as modules are added; a function that is only declared gets one at first use, so
// that tables which hold it can be built (calling it is reported when it happens).
static uint64_t function_id(Linker *linker, const PtxFunction *f) {
    Program *p = (Program *)linker;
    const uint64_t *known = map_find(&p->ids, map_key(f));
    if (known) return *known;
    uint64_t id = FUNCTION_WINDOW + 16 * ++p->next_id;
    map_set(&p->ids, map_key(f), id);
    return id;
}

// ---- functions whose address is taken

static void take(Program *p, const PtxModule *module, const char *name) {
    PtxFunction *f = find_function(&p->linker, module, name);
    if (!f || map_find(&p->is_taken, map_key(f))) return;
    map_set(&p->is_taken, map_key(f), 1);
    if (p->taken_count == p->taken_capacity) {
        p->taken_capacity = p->taken_capacity ? 2 * p->taken_capacity : 16;
        p->taken = must(realloc(p->taken, sizeof *p->taken * (size_t)p->taken_capacity));
    }
    p->taken[p->taken_count++] = f;
}

// Functions that an instruction names other than to call them.
static void take_from_instruction(Program *p, const PtxModule *module, const PtxInstruction *i) {
    if (!strcmp(i->opcode, "call")) return;
    for (int o = 0; o < i->operand_count; o++)
        if (i->operands[o].kind == OPERAND_SYMBOL && !i->operands[o].variable)
            take(p, module, i->operands[o].name);
}

// Finds them all, in initialisers and in code. Parses every function: done only for a kernel with
// an indirect call. A function that can't be parsed takes no addresses; it fails where it is used.
static void collect_taken(Program *p) {
    p->taken_known = true;
    for (int m = 0; m < p->module_count; m++) {
        const PtxModule *module = p->modules[m];
        for (int v = 0; v < module->variable_count; v++)
            for (int x = 0; x < module->variables[v]->fixup_count; x++)
                if (!module->variables[v]->fixups[x].variable)
                    take(p, module, module->variables[v]->fixups[x].symbol);
        for (int f = 0; f < module->function_count; f++) {
            PtxFunction *function = module->functions[f];
            PtxError ignored;
            if (function->is_declaration || !ptx_parse_function(function, &ignored)) continue;
            for (int i = 0; i < function->instruction_count; i++)
                take_from_instruction(p, module, &function->instructions[i]);
        }
    }
}

static void each_taken(Linker *linker, void (*visit)(void *context, PtxFunction *), void *context) {
    Program *p = (Program *)linker;
    if (!p->taken_known) collect_taken(p);
    for (int i = 0; i < p->taken_count; i++) visit(context, p->taken[i]);
}

// ---- adding modules

Program *program_new(void) {
    Program *p = must(calloc(1, sizeof *p));
    p->linker = (Linker){
        .variable = find_variable,
        .function = find_function,
        .address = address_of,
        .function_id = function_id,
        .each_taken = each_taken,
    };
    return p;
}

Linker *program_linker(Program *program) {
    return &program->linker;
}

static bool add_variable(Program *p, PtxVariable *v, PtxError *error) {
    if (v->is_extern) return true;
    if (!find_name(p->all_variables, v->name)) add_name(p->all_variables, v->name, v);
    if (!exported(v)) return true;
    Name *n = find_name(p->variables, v->name);
    if (!n) {
        add_name(p->variables, v->name, v);
        return true;
    }
    PtxVariable *other = n->definition;
    if (v->is_weak) return true;
    if (!other->is_weak) return fail(error, "two modules define the variable '%s'", v->name);
    n->definition = v;
    return true;
}

static bool add_function(Program *p, PtxFunction *f, PtxError *error) {
    if (f->is_declaration) return true;
    if (!find_name(p->all_functions, f->name)) add_name(p->all_functions, f->name, f);
    if (!function_exported(f)) return true;
    Name *n = find_name(p->functions, f->name);
    if (!n) {
        add_name(p->functions, f->name, f);
        return true;
    }
    PtxFunction *other = n->definition;
    if (f->is_weak) return true;
    if (!other->is_weak) return fail(error, "two modules define the function '%s'", f->name);
    n->definition = f;
    return true;
}

// Takes a module over: program_free releases it. false and *error on a name defined twice.
bool program_add(Program *p, PtxModule *module, PtxError *error) {
    size_t count = (size_t)p->module_count + 1;
    p->modules = must(realloc(p->modules, sizeof *p->modules * count));
    p->modules[p->module_count++] = module;
    for (int v = 0; v < module->variable_count; v++)
        if (!add_variable(p, module->variables[v], error)) return false;
    for (int f = 0; f < module->function_count; f++) {
        if (!add_function(p, module->functions[f], error)) return false;
        if (!module->functions[f]->is_declaration) function_id(&p->linker, module->functions[f]);
    }
    return true;
}

void program_free(Program *p) {
    if (!p) return;
    for (size_t i = 0; i < p->addresses.capacity; i++)
        if (p->addresses.slots[i].used) global_free(p->memory, p->addresses.slots[i].value);
    free_names(p->variables);
    free_names(p->functions);
    free_names(p->all_variables);
    free_names(p->all_functions);
    map_free(&p->addresses);
    map_free(&p->ids);
    map_free(&p->is_taken);
    for (int m = 0; m < p->module_count; m++) ptx_free(p->modules[m]);
    free(p->modules);
    free(p->taken);
    free(p);
}

// ---- placing variables

static bool lives_in_memory(const PtxVariable *v) {
    return (v->space == SPACE_GLOBAL || v->space == SPACE_CONST) && !v->is_extern && v->size > 0;
}

// Allocates a variable and copies its initial bytes.
static bool place_variable(Program *p, const PtxVariable *v, PtxError *error) {
    MemoryKind kind = v->space == SPACE_CONST ? MEMORY_CONSTANT
                      : v->is_managed         ? MEMORY_MANAGED
                                              : MEMORY_MODULE;
    uint64_t address = global_alloc(p->memory, v->size, kind, v->name);
    if (!address)
        return fail(error, "no memory left on the modelled GPU for the variable '%s'", v->name);
    map_set(&p->addresses, map_key(v), address);
    uint8_t *bytes = global_pointer(p->memory, address);
    if (v->data) memcpy(bytes, v->data, v->size);
    global_mark_written(p->memory, address, v->size);
    return true;
}

// What a fix-up stores: the address of a variable or function.
static bool fixup_value(Program *p, const PtxModule *module, const struct PtxFixup *x,
                        uint64_t *value, PtxError *error) {
    const PtxVariable *v = find_variable(&p->linker, module, x->symbol);
    if (v) {
        *value = address_of(&p->linker, v);
        if (*value) return true;
        return fail(error,
                    "an initialiser holds the address of '%s', which is not in global memory",
                    x->symbol);
    }
    PtxFunction *f = find_function(&p->linker, module, x->symbol);
    if (!f) f = x->function; // only declared
    if (!f) return fail(error, "an initialiser names '%s', which no module defines", x->symbol);
    *value = function_id(&p->linker, f);
    return true;
}

static bool apply_fixups(Program *p, const PtxModule *module, const PtxVariable *v,
                         PtxError *error) {
    uint8_t *bytes = global_pointer(p->memory, address_of(&p->linker, v));
    for (int i = 0; i < v->fixup_count; i++) {
        const struct PtxFixup *x = &v->fixups[i];
        uint64_t value;
        if (!fixup_value(p, module, x, &value, error)) return false;
        value = (value + (uint64_t)x->addend) >> x->shift;
        if (x->size > 8 || x->offset + x->size > v->size)
            return fail(error, "an address in the initialiser of '%s' lies outside it", v->name);
        memcpy(bytes + x->offset, &value, x->size);
    }
    return true;
}

// Is this the definition that its name means (and not a weak one that lost)?
static bool canonical(const Program *p, const PtxVariable *v) {
    if (!exported(v)) return true;
    const Name *n = find_name(p->variables, v->name);
    return n && n->definition == v;
}

// Allocates the variables and writes their initial values; see link.h.
bool program_place(Program *p, struct GlobalMemory *memory, PtxError *error) {
    p->memory = memory;
    for (int pass = 0; pass < 2; pass++)
        for (int m = 0; m < p->module_count; m++)
            for (int i = 0; i < p->modules[m]->variable_count; i++) {
                const PtxVariable *v = p->modules[m]->variables[i];
                if (!lives_in_memory(v) || !canonical(p, v)) continue;
                bool ok = pass == 0 ? place_variable(p, v, error)
                                    : apply_fixups(p, p->modules[m], v, error);
                if (!ok) return false;
            }
    return true;
}

// ---- look-ups for the API

PtxFunction *program_function(const Program *p, const char *name) {
    const Name *n = find_name(p->functions, name);
    if (!n) n = find_name(p->all_functions, name);
    return n ? n->definition : NULL;
}

const PtxVariable *program_variable(const Program *p, const char *name) {
    const Name *n = find_name(p->variables, name);
    if (!n) n = find_name(p->all_variables, name);
    return n ? n->definition : NULL;
}

// Device address of a placed variable, and its size; 0 if there is none of that name.
uint64_t program_variable_address(const Program *p, const char *name, uint64_t *size) {
    const PtxVariable *v = program_variable(p, name);
    const uint64_t *address = v ? map_find(&p->addresses, map_key(v)) : NULL;
    if (!address) return 0;
    if (size) *size = v->size;
    return *address;
}
