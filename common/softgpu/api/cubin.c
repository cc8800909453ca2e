// Reading kernels' register counts from machine code. A cubin is a 64-bit little-endian ELF file;
// its section .nv.info is a run of records, and record 0x2f names a symbol and its registers.
#include "softgpu/api/fatbin.h"

#include <elf.h>
#include <string.h>

enum { RECORD_SIZED = 0x04, ATTRIBUTE_REGISTERS = 0x2f };

// A part of the file, or {NULL, 0} if it lies outside.
typedef struct {
    const uint8_t *bytes;
    size_t size;
} Span;

static Span span(const uint8_t *elf, size_t size, uint64_t offset, uint64_t length) {
    if (offset > size || length > size - offset) return (Span){0};
    return (Span){elf + offset, length};
}

// A NUL-terminated string inside a span, or NULL.
static const char *string_at(Span strings, uint64_t offset) {
    if (offset >= strings.size || !memchr(strings.bytes + offset, 0, strings.size - offset))
        return NULL;
    return (const char *)strings.bytes + offset;
}

bool cubin_registers(const uint8_t *elf, size_t size,
                     void (*visit)(void *context, const char *kernel, uint32_t registers),
                     void *context) {
    Elf64_Ehdr header;
    if (size < sizeof header || memcmp(elf, ELFMAG, SELFMAG) || elf[EI_CLASS] != ELFCLASS64)
        return false;
    memcpy(&header, elf, sizeof header);
    Span table = span(elf, size, header.e_shoff, (uint64_t)header.e_shnum * sizeof(Elf64_Shdr));
    if (table.bytes == NULL || header.e_shentsize != sizeof(Elf64_Shdr) ||
        header.e_shstrndx >= header.e_shnum)
        return false;
    Elf64_Shdr section, names_section;
    memcpy(&names_section, table.bytes + header.e_shstrndx * sizeof section, sizeof section);
    Span section_names = span(elf, size, names_section.sh_offset, names_section.sh_size);

    Span symbols = {0}, strings = {0}, info = {0};
    for (int i = 0; i < header.e_shnum; i++) {
        memcpy(&section, table.bytes + i * sizeof section, sizeof section);
        const char *name = string_at(section_names, section.sh_name);
        if (name == NULL) continue;
        Span content = span(elf, size, section.sh_offset, section.sh_size);
        if (section.sh_type == SHT_SYMTAB && !strcmp(name, ".symtab"))
            symbols = content;
        else if (section.sh_type == SHT_STRTAB && !strcmp(name, ".strtab"))
            strings = content;
        else if (!strcmp(name, ".nv.info"))
            info = content;
    }

    size_t at = 0;
    while (at + 4 <= info.size) {
        uint8_t format = info.bytes[at], attribute = info.bytes[at + 1];
        uint16_t length;
        memcpy(&length, info.bytes + at + 2, sizeof length);
        at += 4;
        if (format != RECORD_SIZED) continue; // the value is in `length` itself
        if (length > info.size - at) return false;
        if (attribute == ATTRIBUTE_REGISTERS && length >= 8) {
            uint32_t symbol_index, registers;
            memcpy(&symbol_index, info.bytes + at, 4);
            memcpy(&registers, info.bytes + at + 4, 4);
            Elf64_Sym symbol;
            if ((uint64_t)symbol_index * sizeof symbol + sizeof symbol <= symbols.size) {
                memcpy(&symbol, symbols.bytes + symbol_index * sizeof symbol, sizeof symbol);
                const char *name = string_at(strings, symbol.st_name);
                if (name && *name) visit(context, name, registers);
            }
        }
        at += length;
    }
    return true;
}
