/* SPDX-License-Identifier: MIT */
/* letters.c - categories of characters, from utf8proc. */
#include "letters.h"

#include <string.h>
#include <utf8proc.h>

#define C(x) (1 << UTF8PROC_CATEGORY_##x)
/* Sets that are no categories */
#define PICTOGRAPHS (UINT64_C(1) << 62)
#define COMPONENTS  (UINT64_C(1) << 63)
static const struct {
    const char *name, *also;
    uint64_t kinds;
} names[] = {
    { "L", "Letter", C(LU) | C(LL) | C(LT) | C(LM) | C(LO) },
    { "Lu", "Uppercase_Letter", C(LU) },
    { "Ll", "Lowercase_Letter", C(LL) },
    { "Lt", "Titlecase_Letter", C(LT) },
    { "Lm", "Modifier_Letter", C(LM) },
    { "Lo", "Other_Letter", C(LO) },
    { "M", "Mark", C(MN) | C(MC) | C(ME) },
    { "Mn", "Nonspacing_Mark", C(MN) },
    { "Mc", "Spacing_Mark", C(MC) },
    { "Me", "Enclosing_Mark", C(ME) },
    { "N", "Number", C(ND) | C(NL) | C(NO) },
    { "Nd", "Decimal_Number", C(ND) },
    { "Nl", "Letter_Number", C(NL) },
    { "No", "Other_Number", C(NO) },
    { "P", "Punctuation", C(PC) | C(PD) | C(PS) | C(PE) | C(PI) | C(PF) | C(PO) },
    { "Pc", "Connector_Punctuation", C(PC) },
    { "Pd", "Dash_Punctuation", C(PD) },
    { "Ps", "Open_Punctuation", C(PS) },
    { "Pe", "Close_Punctuation", C(PE) },
    { "Pi", "Initial_Punctuation", C(PI) },
    { "Pf", "Final_Punctuation", C(PF) },
    { "Po", "Other_Punctuation", C(PO) },
    { "S", "Symbol", C(SM) | C(SC) | C(SK) | C(SO) },
    { "Sm", "Math_Symbol", C(SM) },
    { "Sc", "Currency_Symbol", C(SC) },
    { "Sk", "Modifier_Symbol", C(SK) },
    { "So", "Other_Symbol", C(SO) },
    { "Z", "Separator", C(ZS) | C(ZL) | C(ZP) },
    { "Zs", "Space_Separator", C(ZS) },
    { "Cc", "Control", C(CC) },
    { "Cf", "Format", C(CF) },
    { "ExtPict", "Extended_Pictographic", PICTOGRAPHS },
    { "EComp", "Emoji_Component", COMPONENTS },
    { "Emoji", "Emoji_Presentation", PICTOGRAPHS },
    { "Alpha", "Alphabetic", C(LU) | C(LL) | C(LT) | C(LM) | C(LO) | C(NL) },
    { "Upper", "Uppercase", C(LU) },
    { "Lower", "Lowercase", C(LL) },
};
#undef C

static int is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && !memcmp(s, name, n);
}

uint64_t cb_letter_kinds(const char *name, size_t n)
{
    static const char *const fronts[] = { "gc=", "General_Category=" };

    for (int i = 0; i < 2; i++)
        if (n > strlen(fronts[i]) && !memcmp(name, fronts[i], strlen(fronts[i]))) {
            name += strlen(fronts[i]);
            n -= strlen(fronts[i]);
        }
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (is(name, n, names[i].name) || is(name, n, names[i].also))
            return names[i].kinds;
    return 0;
}

/* Digits, joiners, selectors, flags' letters, skin tones, hair, tags (Unicode's emoji-data.txt) */
static int is_component(uint32_t c)
{
    static const uint32_t range[][2] = {
        { '#', '#' },         { '*', '*' },         { '0', '9' },         { 0x200D, 0x200D },
        { 0x20E3, 0x20E3 },   { 0xFE0F, 0xFE0F },   { 0x1F1E6, 0x1F1FF }, { 0x1F3FB, 0x1F3FF },
        { 0x1F9B0, 0x1F9B3 }, { 0xE0020, 0xE007F },
    };

    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return 1;
    return 0;
}

int cb_letter_is(uint32_t c, uint64_t kinds)
{
    const utf8proc_property_t *p;

    if (kinds & COMPONENTS)
        return is_component(c);
    p = utf8proc_get_property((utf8proc_int32_t)c);
    if (kinds & PICTOGRAPHS)
        return p->boundclass == UTF8PROC_BOUNDCLASS_EXTENDED_PICTOGRAPHIC;
    return kinds >> p->category & 1;
}
