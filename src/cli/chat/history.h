/* SPDX-License-Identifier: MIT */
/* history.h - what was typed in earlier conversations: $XDG_STATE_HOME/ctxbank/chat_history. */
#ifndef HISTORY_H
#define HISTORY_H

/* Calls fn with the newest `most` entries, the oldest of them first. A file that is not there, or
 * cannot be read, has none. */
int cb_history_load(int most, int (*fn)(void *arg, const char *text), void *arg);
/* Appends an entry. A history that cannot be written is no failure of the conversation. */
void cb_history_add(const char *text);

#endif
