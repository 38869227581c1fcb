/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Binds the library to symbol versions that glibc 2.31 has, whatever glibc it is built on:
 * since 2.32 and 2.34 the functions of libpthread and libdl carry new versions in libc. Included
 * before every host source of the library. On glibc 2.31 they are found in the libpthread and libdl
 * of the process, which every user of CUDA has; binding is lazy, so that a preloaded program
 * without them is not disturbed.
 */
#pragma once
#ifndef __ASSEMBLER__
#include <features.h>

/* glibc 2.38 gives strtol and its kin other names under _GNU_SOURCE (they then know 0b1). */
#undef __GLIBC_USE_C2X_STRTOL
#define __GLIBC_USE_C2X_STRTOL 0
#undef __GLIBC_USE_C23_STRTOL
#define __GLIBC_USE_C23_STRTOL 0

#if defined(__x86_64__)
#define STRAIT_BIND(name) __asm__(".symver " #name "," #name "@GLIBC_2.2.5")
STRAIT_BIND(dlerror);
STRAIT_BIND(dlopen);
STRAIT_BIND(dlsym);
STRAIT_BIND(pthread_create);
STRAIT_BIND(pthread_detach);
STRAIT_BIND(pthread_join);
STRAIT_BIND(pthread_once);
STRAIT_BIND(pthread_sigmask);
#endif
#endif /* __ASSEMBLER__ */
