/* SPDX-License-Identifier: MIT */
/* page_files.js - the text of files that are dropped on the page: plain text in several encodings,
 * DOCX and ODT, the text of PDF. A part of page.html's script. */

/* ---- plain text ---- */

/* Bytes -> {text, note}; null: they are no text. As the command line decides (encoding.c). */
function plainText(b) {
    const big = b[0] === 0xfe && b[1] === 0xff, wide = big || (b[0] === 0xff && b[1] === 0xfe);
    if (b.includes(0) && !wide)
        return null;
    try {
        const name = big ? 'utf-16be' : wide ? 'utf-16le' : 'utf-8';
        return { text: new TextDecoder(name, { fatal: true }).decode(b) };
    } catch { /* another encoding */ }
    let high = 0, seen = 0, control = 0;
    for (const c of b) {
        high += c > 127;
        seen += c > 32;
        control += c < 9 || (c > 13 && c < 32 && c !== 27);
    }
    if (wide || control || high * 4 > seen)
        return null;
    return { text: new TextDecoder('windows-1252').decode(b), note: 'read as Windows-1252' };
}

/* ---- archives: DOCX, ODT ---- */

async function inflate(bytes, format) {
    const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream(format));
    const parts = [], reader = stream.getReader();
    try {
        for (let r = await reader.read(); !r.done; r = await reader.read())
            parts.push(r.value);
    } catch { /* what came before the damage counts */ }
    return new Uint8Array(await new Blob(parts).arrayBuffer());
}

/* The bytes of an archive's file, or null */
async function unzip(b, name) {
    const v = new DataView(b.buffer, b.byteOffset, b.length);
    let end = b.length - 22;
    while (end >= 0 && v.getUint32(end, true) !== 0x06054b50)
        end--;
    if (end < 0)
        return null;
    let at = v.getUint32(end + 16, true);
    for (let n = v.getUint16(end + 10, true); n && v.getUint32(at, true) === 0x02014b50; n--) {
        const len = v.getUint16(at + 28, true), method = v.getUint16(at + 10, true);
        if (new TextDecoder().decode(b.subarray(at + 46, at + 46 + len)) === name) {
            const local = v.getUint32(at + 42, true);
            const from = local + 30 + v.getUint16(local + 26, true) + v.getUint16(local + 28, true);
            const data = b.subarray(from, from + v.getUint32(at + 20, true));
            return method === 0 ? data : method === 8 ? inflate(data, 'deflate-raw') : null;
        }
        at += 46 + len + v.getUint16(at + 30, true) + v.getUint16(at + 32, true);
    }
    return null;
}

const ENTITY = { lt: '<', gt: '>', amp: '&', quot: '"', apos: "'" };
const unescapeXml = s => s.replace(/&(#x[\da-f]+|#\d+|\w+);/gi, (m, e) => e[0] !== '#'
    ? ENTITY[e] ?? m
    : String.fromCodePoint(parseInt(e.slice(e[1] === 'x' ? 2 : 1), e[1] === 'x' ? 16 : 10)));

/* Text of word/document.xml or content.xml: a line a paragraph, cells of tables parted by tabs */
function officeText(xml) {
    let out = '', inText = false, cell = false;
    for (const m of xml.matchAll(/<(\/?)([\w:]+)[^>]*?(\/?)>|([^<]+)/g)) {
        const [, close, tag, empty, text] = m;
        if (text !== undefined) {
            if (inText)
                out += unescapeXml(text);
        } else if (tag === 'w:t' || tag === 'text:p' || tag === 'text:h') {
            inText = !close && !empty;
            if (tag !== 'w:t' && (close || empty))
                out += cell ? ' ' : '\n';
        } else if (tag === 'w:tab' || tag === 'text:tab') {
            out += '\t';
        } else if (tag === 'w:br' || tag === 'w:cr' || tag === 'text:line-break') {
            out += '\n';
        } else if (tag === 'text:s') {
            out += ' ';
        } else if (tag === 'w:p' && (close || empty)) {
            out += cell ? ' ' : '\n';
        } else if (tag === 'w:tc' || tag === 'table:table-cell') {
            cell = !close && !empty;
            if (close)
                out = `${out.trimEnd()}\t`;
        } else if ((tag === 'w:tr' || tag === 'table:table-row') && close) {
            out = `${out.trimEnd()}\n`;
        }
    }
    return out;
}

async function archiveText(b) {
    for (const name of ['word/document.xml', 'content.xml']) {
        const xml = await unzip(b, name);
        if (xml)
            return { text: officeText(new TextDecoder().decode(xml)) };
    }
    return null;
}

/* ---- PDF: values ---- */

class PdfName extends String {}
class PdfRef { constructor(n) { this.n = n; } }

const latin1 = b => {
    let s = '';
    for (let i = 0; i < b.length; i += 0x8000)
        s += String.fromCharCode(...b.subarray(i, i + 0x8000));
    return s;
};
const bytesOf = s => Uint8Array.from(s, c => c.charCodeAt(0));

/* Reads values and operators of s from `at` on; strings are texts of bytes. */
class PdfReader {
    constructor(s, at = 0) {
        this.s = s;
        this.at = at;
    }

    blank() {
        const skip = /(?:[\0\t\n\f\r ]|%[^\r\n]*)*/y;
        skip.lastIndex = this.at;
        skip.exec(this.s);
        this.at = skip.lastIndex;
    }

    string() {
        const from = { n: '\n', r: '\r', t: '\t', b: '\b', f: '\f' };
        let out = '', depth = 1;
        for (this.at++; this.at < this.s.length; this.at++) {
            const c = this.s[this.at];
            if (c === '\\') {
                const octal = /^[0-7]{1,3}/.exec(this.s.substr(this.at + 1, 3));
                const next = this.s[this.at + 1];
                out += octal ? String.fromCharCode(parseInt(octal[0], 8) & 255)
                    : from[next] ?? (next === '\n' || next === '\r' ? '' : next);
                this.at += octal ? octal[0].length : 1;
                continue;
            }
            depth += c === '(' ? 1 : c === ')' ? -1 : 0;
            if (!depth)
                break;
            out += c;
        }
        this.at++;
        return out;
    }

    hex() {
        const end = this.s.indexOf('>', this.at);
        let h = this.s.slice(this.at + 1, end).replace(/[^\da-f]/gi, '');
        h += h.length % 2 ? '0' : '';
        this.at = end + 1;
        return h.replace(/../g, x => String.fromCharCode(parseInt(x, 16)));
    }

    several(end) {
        const list = [];
        for (;;) {
            this.blank();
            if (this.s.startsWith(end, this.at) || this.at >= this.s.length) {
                this.at += end.length;
                return list;
            }
            list.push(this.value());
        }
    }

    /* undefined: the end; an operator is {op} */
    value(depth = 0) {
        this.blank();
        const c = this.s[this.at];
        if (c === undefined || depth > 50)
            return undefined;
        if (c === '(')
            return { text: this.string() };
        if (this.s.startsWith('<<', this.at)) {
            this.at += 2;
            const list = this.several('>>'), dict = {};
            for (let i = 0; i + 1 < list.length; i += 2)
                dict[String(list[i])] = list[i + 1];
            return dict;
        }
        if (c === '<')
            return { text: this.hex() };
        if (c === '[') {
            this.at++;
            return this.several(']');
        }
        const token = /\/[^\0\t\n\f\r ()<>[\]{}/%]*|[^\0\t\n\f\r ()<>[\]{}/%]+/y;
        token.lastIndex = this.at;
        const m = token.exec(this.s);
        if (!m) {
            this.at++;
            return { op: c };
        }
        const ref = /(\d+)[\0\t\n\f\r ]+\d+[\0\t\n\f\r ]+R(?![\w])/y;
        ref.lastIndex = this.at;
        const r = ref.exec(this.s);
        this.at = r ? ref.lastIndex : token.lastIndex;
        if (r)
            return new PdfRef(Number(r[1]));
        if (m[0][0] === '/')
            return new PdfName(m[0].slice(1).replace(/#([\da-f]{2})/gi,
                (_, x) => String.fromCharCode(parseInt(x, 16))));
        return /^[-+]?(\d+\.?\d*|\.\d+)$/.test(m[0]) ? Number(m[0]) : { op: m[0] };
    }
}

/* ---- PDF: objects ---- */

/* Five digits of base 85 are four bytes; z is four zeros. */
function ascii85(b) {
    const out = [];
    let n = 0, value = 0;
    for (const c of b) {
        if (c === 126) // ~
            break;
        if (c === 122 && !n)
            out.push(0, 0, 0, 0);
        if (c < 33 || c > 117)
            continue;
        value = value * 85 + c - 33;
        if (++n === 5) {
            for (const k of [24, 16, 8, 0])
                out.push(Math.floor(value / 2 ** k) % 256);
            n = value = 0;
        }
    }
    for (let i = n; n && i < 5; i++)
        value = value * 85 + 84;
    for (let i = 0; i + 1 < n; i++)
        out.push(Math.floor(value / 2 ** (24 - 8 * i)) % 256);
    return Uint8Array.from(out);
}

class Pdf {
    static async open(b) {
        const p = new Pdf();
        p.bytes = b;
        p.s = latin1(b);
        p.objects = new Map();
        for (const m of p.s.matchAll(/(?:^|[\r\n \0])(\d+)[ \r\n]+\d+[ \r\n]+obj\b/g))
            p.objects.set(Number(m[1]), { at: m.index + m[0].length });
        for (const n of [...p.objects.keys()]) {
            const o = p.get(new PdfRef(n));
            if (o && String(o.Type) === 'ObjStm')
                await p.unpack(n, o);
        }
        return p;
    }

    /* Objects that stand in a stream together */
    async unpack(n, dict) {
        const s = latin1(await this.data(n)), r = new PdfReader(s), head = [];
        for (let i = 0; i < 2 * this.get(dict.N); i++)
            head.push(r.value());
        for (let i = 0; i + 1 < head.length; i += 2)
            if (!this.objects.has(head[i]))
                this.objects.set(head[i],
                    { value: new PdfReader(s, this.get(dict.First) + head[i + 1]).value() });
    }

    get(v) {
        for (let i = 0; v instanceof PdfRef && i < 20; i++) {
            const o = this.objects.get(v.n);
            if (!o)
                return undefined;
            if (!('value' in o)) {
                const r = new PdfReader(this.s, o.at);
                o.value = r.value();
                const stream = /[\0\t\n\f\r ]*stream\r?\n/y;
                stream.lastIndex = r.at;
                o.from = stream.exec(this.s) ? stream.lastIndex : 0;
            }
            v = o.value;
        }
        return v;
    }

    /* What the stream n holds, unpacked */
    async data(n) {
        const dict = this.get(new PdfRef(n)), from = this.objects.get(n)?.from;
        if (!from)
            return new Uint8Array();
        let len = this.get(dict.Length);
        if (!(len >= 0) || !/^\s*endstream/.test(this.s.substr(from + len, 20)))
            len = this.s.indexOf('endstream', from) - from;
        let b = this.bytes.subarray(from, from + len);
        for (const f of [this.get(dict.Filter) ?? []].flat()) {
            const name = String(this.get(f));
            if (name === 'FlateDecode' || name === 'Fl')
                b = await inflate(b, 'deflate');
            else if (name === 'ASCII85Decode' || name === 'A85')
                b = ascii85(b);
            else if (name === 'ASCIIHexDecode')
                b = bytesOf(new PdfReader(`<${latin1(b)}`).hex());
            else
                return new Uint8Array();
        }
        return b;
    }

    pages() {
        const list = [], seen = new Set();
        const walk = (ref, above) => {
            const node = this.get(ref);
            if (!node || seen.has(ref.n ?? ref))
                return;
            seen.add(ref.n ?? ref);
            const resources = node.Resources ?? above;
            if (node.Kids)
                this.get(node.Kids).forEach(kid => walk(kid, resources));
            else
                list.push({ page: node, resources: this.get(resources) || {} });
        };
        for (const n of this.objects.keys())
            if (String(this.get(new PdfRef(n))?.Type) === 'Catalog')
                walk(this.get(new PdfRef(n)).Pages);
        return list;
    }
}

/* ---- PDF: text ---- */

const utf16 = s => new TextDecoder('utf-16be').decode(bytesOf(s));
const codeOf = s => [...s].reduce((n, c) => n * 256 + c.charCodeAt(0), 0);
const GLYPH = { space: ' ', quoteright: '\u2019', quoteleft: '\u2018', quotedblleft: '\u201c',
    quotedblright: '\u201d', endash: '\u2013', emdash: '\u2014', bullet: '\u2022', fi: 'fi',
    fl: 'fl', ff: 'ff', ffi: 'ffi', ffl: 'ffl', hyphen: '-', minus: '-', period: '.',
    comma: ',', colon: ':', semicolon: ';', parenleft: '(', parenright: ')', bracketleft: '[',
    bracketright: ']', slash: '/', backslash: '\\', underscore: '_', quotesingle: "'",
    quotedbl: '"', exclam: '!', question: '?', numbersign: '#', dollar: '$', percent: '%',
    ampersand: '&', asterisk: '*', plus: '+', equal: '=', less: '<', greater: '>', at: '@',
    bar: '|', braceleft: '{', braceright: '}', asciitilde: '~', asciicircum: '^', grave: '`',
    zero: '0', one: '1', two: '2', three: '3', four: '4', five: '5', six: '6', seven: '7',
    eight: '8', nine: '9', ellipsis: '\u2026', germandbls: '\u00df' };
const MARKS = { grave: '\u0300', acute: '\u0301', circumflex: '\u0302', tilde: '\u0303',
    dieresis: '\u0308', ring: '\u030a', caron: '\u030c', cedilla: '\u0327' };

function glyph(name) {
    const uni = /^u(?:ni)?([\dA-F]{4,6})$/.exec(name);
    const marked = /^([A-Za-z])([a-z]{4,})$/.exec(name);
    if (uni)
        return String.fromCodePoint(parseInt(uni[1], 16));
    if (marked && MARKS[marked[2]])
        return (marked[1] + MARKS[marked[2]]).normalize('NFC');
    return GLYPH[name] ?? (name.length === 1 ? name : '');
}

/* A CMap's codes -> texts, and how many bytes a code has */
function cmap(s) {
    const map = new Map(), r = new PdfReader(s);
    let args = [], width = 0;
    for (let v = r.value(); v !== undefined; v = r.value()) {
        if (v.op === 'endcodespacerange')
            width = args.at(-1)?.text?.length || width;
        if (v.op === 'endbfchar')
            for (let i = 0; i + 1 < args.length; i += 2)
                map.set(codeOf(args[i].text), utf16(args[i + 1].text));
        if (v.op === 'endbfrange')
            for (let i = 0; i + 2 < args.length; i += 3) {
                const [from, to] = [codeOf(args[i].text), codeOf(args[i + 1].text)];
                for (let c = from; c <= to && c < from + 65536; c++) {
                    const t = args[i + 2];
                    map.set(c, Array.isArray(t) ? utf16(t[c - from]?.text || '')
                        : utf16(t.text.slice(0, -1) + String.fromCharCode(
                            (t.text.charCodeAt(t.text.length - 1) + c - from) & 255)));
                }
            }
        if (v.op)
            args = [];
        else
            args.push(v);
    }
    return { map, width };
}

/* Widths of a font's codes in thousandths of its size; null: unknown */
function widths(pdf, font, wide) {
    const map = new Map(), list = pdf.get(font.Widths), first = pdf.get(font.FirstChar);
    if (!wide)
        return list ? (list.forEach((w, i) => map.set(first + i, pdf.get(w))), map) : null;
    const inner = pdf.get(pdf.get(font.DescendantFonts)?.[0]) || {}, w = pdf.get(inner.W) || [];
    map.rest = pdf.get(inner.DW) ?? 1000;
    for (let i = 0; i + 1 < w.length;) {
        const next = pdf.get(w[i + 1]);
        if (Array.isArray(next))
            next.forEach((x, k) => map.set(w[i] + k, pdf.get(x)));
        else
            for (let c = w[i]; c <= next && c < w[i] + 65536; c++)
                map.set(c, pdf.get(w[i + 2]));
        i += Array.isArray(next) ? 2 : 3;
    }
    return map;
}

/* bytes of a string -> {text, width}, as the font has it; a width that is unknown is NaN */
async function decoder(pdf, font) {
    const wide = String(font.Subtype) === 'Type0', encoding = pdf.get(font.Encoding);
    const own = new Map(), windows = new TextDecoder('windows-1252');
    let at = 0;
    for (const d of pdf.get(encoding?.Differences) || []) {
        if (typeof d === 'number')
            at = d;
        else
            own.set(at++, glyph(String(d)));
    }
    const to = font.ToUnicode instanceof PdfRef
        ? cmap(latin1(await pdf.data(font.ToUnicode.n))) : { map: new Map(), width: 0 };
    const size = wide ? to.width || 2 : 1, broad = widths(pdf, font, wide);
    return s => {
        let text = '', width = broad ? 0 : NaN;
        for (let i = 0; i + size <= s.length; i += size) {
            const c = codeOf(s.slice(i, i + size));
            text += to.map.get(c) ?? own.get(c)
                ?? (wide ? '\ufffd' : windows.decode(Uint8Array.of(c)));
            width += (broad?.get(c) ?? broad?.rest ?? 0) / 1000;
        }
        return { text, width };
    };
}

/* Where texts stand on a page: a step down begins a line, a gap parts words. */
class Lines {
    out = '';
    x = 0; // of the next text
    y = 0;
    end = NaN; // where the last text ended; its line
    last = NaN;

    put(shown, size, scale) {
        const unit = size * scale || 1, gap = this.x - this.end;
        if (Number.isFinite(this.last) && Math.abs(this.y - this.last) > .4 * unit)
            this.part(Math.abs(this.y - this.last) > 1.9 * unit ? '\n\n' : '\n');
        else if (this.moved && !(gap < .15 * unit && gap > -2 * unit))
            this.part(' ');
        this.out += shown.text;
        this.x += shown.width * unit;
        this.end = this.x;
        this.last = this.y;
        this.moved = false;
    }

    part(c) { // unless something parts already
        if (this.out && !/\s$/.test(this.out))
            this.out += c;
    }
}

/* What a page, or a form on it, says */
async function contentText(pdf, s, resources, lines, depth = 0) {
    const fonts = pdf.get(resources.Font) || {}, forms = pdf.get(resources.XObject) || {};
    const known = new Map(), r = new PdfReader(s);
    let args = [], decode = t => ({ text: t, width: NaN }), size = 1, leading = 0;
    let line = [1, 0, 0, 1, 0, 0]; // the matrix of the line
    const go = (x, y) => {
        line = [...line.slice(0, 4), line[4] + x * line[0] + y * line[2],
            line[5] + x * line[1] + y * line[3]];
        [lines.x, lines.y, lines.moved] = [line[4], line[5], true];
    };
    const show = t => lines.put(decode(t), size, Math.hypot(line[0], line[1]));
    for (let v = r.value(); v !== undefined; v = r.value()) {
        if (v === null || typeof v !== 'object' || v.op === undefined) {
            args.push(v);
            continue;
        }
        const last = args.at(-1);
        switch (v.op) {
        case 'BT':
            line = [1, 0, 0, 1, 0, 0];
            go(0, 0);
            break;
        case 'Tf':
            size = Math.abs(last) || 1;
            if (!known.has(String(args[0])))
                known.set(String(args[0]), await decoder(pdf, pdf.get(fonts[args[0]]) || {}));
            decode = known.get(String(args[0]));
            break;
        case 'TL': leading = last; break;
        case 'TD': leading = -args[1]; // falls through
        case 'Td': go(args[0], args[1]); break;
        case 'Tm':
            line = args.slice(0, 6);
            go(0, 0);
            break;
        case 'T*': go(0, -leading || -size); break;
        case "'": case '"': go(0, -leading || -size); // falls through
        case 'Tj': show(last?.text || ''); break;
        case 'TJ':
            for (const x of Array.isArray(last) ? last : [])
                if (typeof x !== 'number')
                    show(x?.text || '');
                else if (x < -180)
                    lines.part(' ');
            break;
        case 'BI': // a picture in the text: skipped
            r.at = Math.max(r.at, s.indexOf('EI', r.at) + 2);
            break;
        case 'Do': {
            const ref = forms[last], form = pdf.get(ref);
            if (depth < 4 && ref instanceof PdfRef && String(form?.Subtype) === 'Form')
                await contentText(pdf, latin1(await pdf.data(ref.n)),
                    pdf.get(form.Resources) || resources, lines, depth + 1);
        }
        }
        args = [];
    }
    return lines.out;
}

async function pdfText(b) {
    const pdf = await Pdf.open(b);
    if (/\/Encrypt\s+\d+\s+\d+\s+R/.test(pdf.s))
        throw new Error('it is encrypted; save it without a password');
    let out = '';
    for (const { page, resources } of pdf.pages()) {
        let s = '';
        for (const c of [page.Contents instanceof PdfRef && Array.isArray(pdf.get(page.Contents))
            ? pdf.get(page.Contents) : page.Contents ?? []].flat())
            s += `${latin1(await pdf.data(c.n))}\n`;
        out += `${await contentText(pdf, s, resources, new Lines())}\n\n`;
    }
    const lost = out.split('\ufffd').length - 1;
    if (!out.trim() || lost * 4 > out.length)
        throw new Error('its pages have no text that can be read; is it a scan?');
    out = out.replace(/[\ufb00-\ufb04]/g, c => c.normalize('NFKC')); // ligatures
    return { text: out, note: lost ? `${lost} characters could not be read` : undefined };
}

/* ---- any file ---- */

/* A file's bytes -> {text, note}. Fails with why there is none. */
async function fileText(b) {
    if (latin1(b.subarray(0, 5)) === '%PDF-')
        return pdfText(b);
    const found = latin1(b.subarray(0, 4)) === 'PK\x03\x04' ? await archiveText(b) : plainText(b);
    if (!found)
        throw new Error('it is no text; text files, PDF, DOCX and ODT are read');
    return found;
}
