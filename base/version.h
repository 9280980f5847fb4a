#ifndef GM_BASE_VERSION_H
#define GM_BASE_VERSION_H

#define GM_VERSION "0.1.0"

/* Version of the replay rules (docs/semantics.md): results are comparable only within one. */
#define GM_SEMANTICS_VERSION 1

#endif
