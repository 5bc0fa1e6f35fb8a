/* SPDX-License-Identifier: MIT */
/* letters.c - categories of characters, from utf8proc. */
#include "letters.h"

#include <string.h>
#include <utf8proc.h>

#define C(x) (1 << UTF8PROC_CATEGORY_##x)
static const struct {
    const char *name, *also;
    int kinds;
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
};
#undef C

static int is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && !memcmp(s, name, n);
}

int cb_letter_kinds(const char *name, size_t n)
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

int cb_letter_is(uint32_t c, int kinds)
{
    return kinds >> utf8proc_category((utf8proc_int32_t)c) & 1;
}
