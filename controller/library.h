/* library.h - which file the code that runs came from. */
#ifndef CONTROLLER_LIBRARY_H
#define CONTROLLER_LIBRARY_H

/* The path of the library, or of the program, that holds the function `inside`; NULL when the
 * loader cannot tell. The loader's own, valid as long as that is loaded. */
const char *library_file(void (*inside)(void));

#endif
