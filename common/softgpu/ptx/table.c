// Matches instructions against the table of forms (execute/form.h states the grammar).
//
// Which forms take an instruction's modifiers depends on its full opcode alone ("ld.global.u32"),
// of which even large programs have a few hundred; so that answer is found once per spelling and
// kept for the life of the process. What is left for each instruction is a look at its operands.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "softgpu/ptx/table.h"

static const Form *const tables[] = {
    integer_forms,  bits_forms,    float_forms,       function_forms,     half_forms,
    compare_forms,  convert_forms, pack_forms,        move_forms,         memory_forms,
    atomic_forms,   barrier_forms, warp_forms,        control_forms,      cp_async_forms,
    mbarrier_forms, matrix_forms,  matrix_move_forms, wmma_forms,         wgmma_forms,
    cluster_forms,  remote_forms,  register_forms,    bulk_forms,         tensor_map_forms,
    phase_forms,    tcgen05_forms, tcgen05_mma_forms, tcgen05_copy_forms, launch_control_forms,
};

// The tables one after the other; NULL behind the last.
const Form *form_table(int number) {
    return number < (int)(sizeof tables / sizeof *tables) ? tables[number] : NULL;
}

enum { NAME_BUCKETS = 1024 };

// Forms of one opcode, in table order.
typedef struct NameEntry {
    const char *name;
    const Form **forms;
    int count;
    struct NameEntry *next;
} NameEntry;

// Forms whose modifiers fit one full opcode, with the choices.
typedef struct Spelling {
    char *full;
    int count;
    struct Candidate {
        const Form *form;
        uint8_t choice[16];
    } * candidates;
    struct Spelling *next;
} Spelling;

static NameEntry *name_buckets[NAME_BUCKETS];
static Spelling *spelling_buckets[NAME_BUCKETS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static bool indexed;

static void *must(void *memory) {
    if (memory) return memory;
    fprintf(stderr, "softgpu: out of memory while decoding PTX\n");
    exit(2);
}

static uint32_t hash_string(const char *s) {
    uint32_t h = 2166136261u;
    for (; *s; s++) h = (h ^ (uint8_t)*s) * 16777619u;
    return h ^ (h >> 15);
}

static NameEntry *find_name(const char *name) {
    NameEntry *e = name_buckets[hash_string(name) % NAME_BUCKETS];
    while (e && strcmp(e->name, name)) e = e->next;
    return e;
}

// Gathers the tables by name.
static void index_tables(void) {
    indexed = true;
    for (size_t t = 0; t < sizeof tables / sizeof *tables; t++)
        for (const Form *f = tables[t]; f->name; f++) {
            NameEntry *e = find_name(f->name);
            if (!e) {
                e = must(calloc(1, sizeof *e));
                e->name = f->name;
                uint32_t bucket = hash_string(f->name) % NAME_BUCKETS;
                e->next = name_buckets[bucket];
                name_buckets[bucket] = e;
            }
            e->forms = must(realloc(e->forms, sizeof *e->forms * (size_t)(e->count + 1)));
            e->forms[e->count++] = f;
        }
}

// ---- modifiers

// Is a modifier this word, in which # stands for a number?
static bool word_fits(const char *word, const char *end, const char *modifier, size_t length) {
    const char *number = memchr(word, '#', (size_t)(end - word));
    if (!number) return (size_t)(end - word) == length && !memcmp(word, modifier, length);
    size_t before = (size_t)(number - word), behind = (size_t)(end - number - 1);
    if (length <= before + behind || memcmp(word, modifier, before)) return false;
    for (size_t k = before; k < length - behind; k++)
        if (modifier[k] < '0' || modifier[k] > '9') return false;
    return !memcmp(number + 1, modifier + length - behind, behind);
}

// Is `modifier` one of the alternatives of the group [group, end)? Its number from 1, or 0.
static int alternative(const char *group, const char *end, const char *modifier) {
    size_t length = strlen(modifier);
    for (int n = 1; group < end; n++) {
        const char *bar = memchr(group, '|', (size_t)(end - group));
        const char *stop = bar ? bar : end;
        if (word_fits(group, stop, modifier, length)) return n;
        group = stop + 1;
    }
    return 0;
}

// Finds the next group of a set: [*begin, *end), without its '?'. Returns what follows, or NULL.
static const char *next_group(const char *s, const char **begin, const char **end, bool *optional) {
    while (*s == ' ') s++;
    if (!*s) return NULL;
    *begin = s;
    while (*s && *s != ' ') s++;
    *optional = s[-1] == '?';
    *end = *optional ? s - 1 : s;
    return s;
}

// Does the set `modifiers` of a form take exactly the modifiers of the instruction? A set that ends
// in * takes any others, too. Fills choice.
bool modifiers_match(const char *modifiers, const PtxInstruction *p, uint8_t choice[16]) {
    if (p->modifier_count > 32) return false;
    uint32_t taken = 0;
    const char *begin, *end, *s = modifiers ? modifiers : "";
    bool optional;
    memset(choice, 0, 16);
    for (int group = 0; (s = next_group(s, &begin, &end, &optional)); group++) {
        if (*begin == '*') return true;
        int chosen = 0;
        for (int i = 0; i < p->modifier_count && !chosen; i++) {
            if (taken >> i & 1) continue;
            chosen = alternative(begin, end, p->modifiers[i]);
            if (chosen) taken |= 1u << i;
        }
        if (!chosen && !optional) return false;
        if (group < 16) choice[group] = (uint8_t)chosen;
    }
    uint32_t all = p->modifier_count == 32 ? ~0u : (1u << p->modifier_count) - 1;
    return taken == all;
}

// ---- operands

// Reads the pattern of one operand; returns what follows it, NULL at the end of the string.
const char *next_operand(const char *s, OperandPattern *pattern) {
    while (*s == ' ') s++;
    if (!*s) return NULL;
    *pattern = (OperandPattern){.field = *s++};
    if (*s == 'p') {
        pattern->width = 1;
        s++;
    } else {
        while (*s >= '0' && *s <= '9') pattern->width = 10 * pattern->width + (*s++ - '0');
    }
    if (*s == '|') {
        pattern->pair = true;
        s += 2; // "|p"
    }
    if (*s == '?') {
        pattern->optional = true;
        s++;
    }
    return s;
}

// Can this operand stand where the pattern wants it?
static bool operand_fits(const OperandPattern *pattern, const PtxOperand *o) {
    if (o->pair != -1 && !pattern->pair) return false;
    switch (pattern->field) {
    case 'm': return o->kind == OPERAND_ADDRESS;
    case 'v':
        return o->kind != OPERAND_ADDRESS && o->kind != OPERAND_LIST && o->kind != OPERAND_LABEL;
    case 'i': return o->kind == OPERAND_INTEGER;
    case 'd': return o->kind == OPERAND_REGISTER || o->kind == OPERAND_SINK;
    default:
        return o->kind == OPERAND_REGISTER || o->kind == OPERAND_SPECIAL ||
               o->kind == OPERAND_INTEGER || o->kind == OPERAND_FLOAT || o->kind == OPERAND_SYMBOL;
    }
}

// Do count and kinds of the operands fit the pattern `operands`? Widths are not looked at.
bool operands_match(const char *operands, const PtxInstruction *p) {
    OperandPattern pattern;
    int total = 0, optional = 0, used = 0;
    for (const char *s = operands; (s = next_operand(s, &pattern)); total++)
        optional += pattern.optional;
    if (p->operand_count > total || p->operand_count < total - optional) return false;

    int spare = p->operand_count - (total - optional); // operands that optional patterns may take
    for (const char *s = operands; (s = next_operand(s, &pattern));) {
        if (pattern.optional && spare-- <= 0) continue;
        if (!operand_fits(&pattern, &p->operands[used++])) return false;
    }
    return true;
}

// ---- the whole instruction

// The forms that take this full opcode's modifiers.
static const Spelling *find_spelling(const PtxInstruction *p) {
    if (!indexed) index_tables();
    Spelling **bucket = &spelling_buckets[hash_string(p->full) % NAME_BUCKETS];
    for (Spelling *s = *bucket; s; s = s->next)
        if (!strcmp(s->full, p->full)) return s;

    Spelling *s = must(calloc(1, sizeof *s));
    s->full = must(strdup(p->full));
    s->next = *bucket;
    *bucket = s;
    const NameEntry *e = find_name(p->opcode);
    if (!e) return s;
    s->candidates = must(calloc((size_t)e->count, sizeof *s->candidates));
    for (int i = 0; i < e->count; i++)
        if (modifiers_match(e->forms[i]->modifiers, p, s->candidates[s->count].choice))
            s->candidates[s->count++].form = e->forms[i];
    return s;
}

// The forms that fit an instruction, in the order of the table: pass -1 first, then what was
// returned. -1 when there is none left.
int form_next(const PtxInstruction *p, int previous, Match *m) {
    pthread_mutex_lock(&lock);
    const Spelling *s = find_spelling(p);
    pthread_mutex_unlock(&lock);
    for (int i = previous + 1; i < s->count; i++) {
        const Form *form = s->candidates[i].form;
        if (form->lower ? form->operands && !operands_match(form->operands, p)
                        : !operands_match(form->operands ? form->operands : "", p))
            continue;
        m->ptx = p;
        m->form = form;
        memcpy(m->choice, s->candidates[i].choice, sizeof m->choice);
        return i;
    }
    return -1;
}

// Is `modifier` an alternative of any group of the form?
static bool knows_modifier(const Form *form, const char *modifier) {
    const char *begin, *end, *s = form->modifiers ? form->modifiers : "";
    bool optional;
    while ((s = next_group(s, &begin, &end, &optional)))
        if (alternative(begin, end, modifier)) return true;
    return false;
}

// Says why no form takes an instruction.
static void explain(const PtxInstruction *p, char *why, size_t size) {
    pthread_mutex_lock(&lock);
    const Spelling *s = find_spelling(p);
    const NameEntry *e = find_name(p->opcode);
    pthread_mutex_unlock(&lock);
    if (!strcmp(p->opcode, "<unparsed>")) {
        snprintf(why, size, "its operands could not be read");
        return;
    }
    const char *known_why = s->count ? NULL : refused_why(p);
    if (known_why) {
        snprintf(why, size, "%s", known_why);
        return;
    }
    if (!e) {
        snprintf(why, size, "there is no form of '%s'", p->opcode);
        return;
    }
    if (s->count) {
        snprintf(why, size, "no form of '%s' takes these operands", p->full);
        return;
    }
    for (int i = 0; i < p->modifier_count; i++) {
        bool known = false;
        for (int f = 0; f < e->count && !known; f++)
            known = knows_modifier(e->forms[f], p->modifiers[i]);
        if (known) continue;
        snprintf(why, size, "no form of '%s' takes .%s", p->opcode, p->modifiers[i]);
        return;
    }
    snprintf(why, size, "no form of '%s' takes these modifiers together", p->opcode);
}

// Finds the form of an instruction; NULL and a reason ("no form of 'x' takes .y") if there is none.
const Form *form_match(const PtxInstruction *p, Match *m, char *why, size_t why_size) {
    if (form_next(p, -1, m) >= 0) return m->form;
    explain(p, why, why_size);
    return NULL;
}
