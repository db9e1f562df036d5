/* library.c - see library.h. */
#include "config.h"

#include "controller/library.h"

#include <dlfcn.h>
#include <stddef.h>
#include <string.h>

const char *library_file(void (*inside)(void))
{
    void *address;
    Dl_info library;

    memcpy(&address, &inside, sizeof address); /* no cast of C turns the one into the other */
    return dladdr(address, &library) != 0 ? library.dli_fname : NULL;
}
