/* io_fault.c - see io_fault.h. Every method goes to the real file below; the writing ones ask
 * first. */
#include "config.h"

#include "tests/storage/io_fault.h"

#include <pthread.h>
#include <sqlite3.h>
#include <string.h>

struct fault_file {
    sqlite3_file base;
    sqlite3_file *real; /* behind this struct */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; /* guards the four below */
static int fault_rc, fault_after, fault_count, fault_hits;

static sqlite3_file *real_of(sqlite3_file *file)
{
    union {
        sqlite3_file *base;
        struct fault_file *fault;
    } both = {file};
    return both.fault->real;
}

static int ask(void)
{
    int rc = SQLITE_OK;
    pthread_mutex_lock(&mutex);
    if (fault_rc != SQLITE_OK && fault_after-- <= 0 && fault_count != 0) {
        rc = fault_rc;
        fault_hits++;
        if (fault_count > 0) fault_count--;
    }
    pthread_mutex_unlock(&mutex);
    return rc;
}

static int fault_close(sqlite3_file *f)
{
    return real_of(f)->pMethods->xClose(real_of(f));
}
static int fault_read(sqlite3_file *f, void *to, int n, sqlite3_int64 at)
{
    return real_of(f)->pMethods->xRead(real_of(f), to, n, at);
}
static int fault_write(sqlite3_file *f, const void *from, int n, sqlite3_int64 at)
{
    int rc = ask();
    return rc ? rc : real_of(f)->pMethods->xWrite(real_of(f), from, n, at);
}
static int fault_truncate(sqlite3_file *f, sqlite3_int64 size)
{
    int rc = ask();
    return rc ? rc : real_of(f)->pMethods->xTruncate(real_of(f), size);
}
static int fault_sync(sqlite3_file *f, int flags)
{
    int rc = ask();
    return rc ? rc : real_of(f)->pMethods->xSync(real_of(f), flags);
}
static int fault_size(sqlite3_file *f, sqlite3_int64 *size)
{
    return real_of(f)->pMethods->xFileSize(real_of(f), size);
}
static int fault_lock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xLock(real_of(f), level);
}
static int fault_unlock(sqlite3_file *f, int level)
{
    return real_of(f)->pMethods->xUnlock(real_of(f), level);
}
static int fault_reserved(sqlite3_file *f, int *out)
{
    return real_of(f)->pMethods->xCheckReservedLock(real_of(f), out);
}
static int fault_control(sqlite3_file *f, int op, void *argument)
{
    return real_of(f)->pMethods->xFileControl(real_of(f), op, argument);
}
static int fault_sector(sqlite3_file *f)
{
    return real_of(f)->pMethods->xSectorSize(real_of(f));
}
static int fault_device(sqlite3_file *f)
{
    return real_of(f)->pMethods->xDeviceCharacteristics(real_of(f));
}
static int fault_shm_map(sqlite3_file *f, int page, int size, int extend, void volatile **out)
{
    return real_of(f)->pMethods->xShmMap(real_of(f), page, size, extend, out);
}
static int fault_shm_lock(sqlite3_file *f, int offset, int n, int flags)
{
    return real_of(f)->pMethods->xShmLock(real_of(f), offset, n, flags);
}
static void fault_shm_barrier(sqlite3_file *f)
{
    real_of(f)->pMethods->xShmBarrier(real_of(f));
}
static int fault_shm_unmap(sqlite3_file *f, int remove)
{
    return real_of(f)->pMethods->xShmUnmap(real_of(f), remove);
}

static const sqlite3_io_methods methods = {2,
                                           fault_close,
                                           fault_read,
                                           fault_write,
                                           fault_truncate,
                                           fault_sync,
                                           fault_size,
                                           fault_lock,
                                           fault_unlock,
                                           fault_reserved,
                                           fault_control,
                                           fault_sector,
                                           fault_device,
                                           fault_shm_map,
                                           fault_shm_lock,
                                           fault_shm_barrier,
                                           fault_shm_unmap,
                                           NULL,
                                           NULL};

static sqlite3_vfs *real_vfs;
static sqlite3_vfs vfs;

static int fault_open(sqlite3_vfs *self, const char *name, sqlite3_file *file, int flags,
                      int *out_flags)
{
    (void)self;
    union {
        sqlite3_file *base;
        struct fault_file *fault;
    } both = {file};
    both.fault->base.pMethods = NULL;
    both.fault->real = (sqlite3_file *)(both.fault + 1);
    int rc = real_vfs->xOpen(real_vfs, name, both.fault->real, flags, out_flags);
    if (both.fault->real->pMethods) both.fault->base.pMethods = &methods;
    return rc;
}

void io_fault_install(void)
{
    if (real_vfs) return;
    real_vfs = sqlite3_vfs_find(NULL);
    vfs = *real_vfs; /* everything but xOpen as it is */
    vfs.pNext = NULL;
    vfs.zName = "fault";
    vfs.szOsFile = (int)sizeof(struct fault_file) + real_vfs->szOsFile;
    vfs.xOpen = fault_open;
    sqlite3_vfs_register(&vfs, 1);
}

void io_fault_set(int rc, int after, int count)
{
    pthread_mutex_lock(&mutex);
    fault_rc = rc;
    fault_after = after;
    fault_count = count;
    fault_hits = 0;
    pthread_mutex_unlock(&mutex);
}

void io_fault_clear(void)
{
    io_fault_set(SQLITE_OK, 0, 0);
}

int io_fault_hits(void)
{
    pthread_mutex_lock(&mutex);
    int hits = fault_hits;
    pthread_mutex_unlock(&mutex);
    return hits;
}
