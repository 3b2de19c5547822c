/* Keeps what a power cut would leave of a folder: exactly what was flushed.
 *
 * Preloaded into a process (LD_PRELOAD). Every call goes to the system as ever; beside that, what an fsync makes durable is
 * copied to a second folder. A kill of the process together with a restore from there is a power cut that drops every write
 * that no flush covered. POSIX is taken by its letter: the fsync of a file keeps its bytes and its length, not its name; the
 * fsync of a folder keeps its names as they are at that moment, not what is in the files that they name.
 *
 *   POWER_CUT_DATA    the folder watched, absolute
 *   POWER_CUT_KEPT    the folder of what is durable; if it holds no tree, all that is in POWER_CUT_DATA counts as durable
 *   POWER_CUT_IGNORE  "fdatasync": that call keeps nothing, so that whoever uses this can see that its checks notice
 *
 * In POWER_CUT_KEPT each inode has an id, its number and the time of its birth:
 *
 *   <id>       the bytes of a file; not there if it was never flushed, which means empty
 *   <id>.dir   the names in a folder, each "f<id>/<name>" or "d<id>/<name>" and a zero byte; not there means empty
 *   tree       a symbolic link to the id of POWER_CUT_DATA
 *
 * Files are known by their descriptors' inodes, so duplicates, renames and several processes need no accounts of their own.
 * Not seen: writable shared maps, io_uring, and calls that do not go through libc's symbols. */

#undef _FORTIFY_SOURCE
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/uio.h>
#include <unistd.h>

/* The system's own function of that name. */
#define REAL(name)                                                                                                             \
  ({                                                                                                                           \
    static __typeof__(&name) found;                                                                                            \
    if (found == NULL) found = (__typeof__(&name))dlsym(RTLD_NEXT, #name);                                                     \
    found;                                                                                                                     \
  })

enum { ID_BYTES = 48, LINK_BYTES = 32, BUCKETS = 4096, COPY_BYTES = 256 << 10 };

/* A file or folder of some file system; those outside of the watched folder are remembered as such. */
struct inode {
  char id[ID_BYTES];
  bool watched, folder;
  /* Bounds of what was changed since the last flush. What lies between and was not changed is the same in the copy. */
  off_t dirty_start, dirty_end;
  struct inode *next;
};

static struct inode *inodes[BUCKETS];
static char data[PATH_MAX]; /* empty as long as nothing is watched */
static uint64_t data_device;
static int kept = -1;
static bool ignores_fdatasync;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* The test would prove nothing if this went on. */
static _Noreturn void fail(const char *what) {
  fprintf(stderr, "power_cut: %s: %s\n", what, strerror(errno));
  abort();
}

static void name_inode(char id[ID_BYTES], const struct statx *stat) {
  const long long born = stat->stx_btime.tv_sec;
  snprintf(id, ID_BYTES, "%llu-%lld.%09u", (unsigned long long)stat->stx_ino, born, stat->stx_btime.tv_nsec);
}

static void name_link(char link[LINK_BYTES], int fd) { snprintf(link, LINK_BYTES, "/proc/self/fd/%d", fd); }

static bool look(int fd, const char *name, struct statx *stat) {
  const int flags = AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
  if (statx(fd, name, flags, STATX_TYPE | STATX_SIZE | STATX_INO | STATX_BTIME, stat) != 0) return false;
  return S_ISREG(stat->stx_mode) || S_ISDIR(stat->stx_mode);
}

static bool lies_in_data(int fd) {
  char link[LINK_BYTES], path[PATH_MAX];
  name_link(link, fd);
  const ssize_t length = readlink(link, path, sizeof path - 1);
  if (length < 0) fail("path of a descriptor");
  path[length] = '\0';
  const size_t prefix = strlen(data);
  return strncmp(path, data, prefix) == 0 && (path[prefix] == '/' || path[prefix] == '\0');
}

/* The watched file or folder behind a descriptor, NULL if it is anything else. Called under the lock. */
static struct inode *inode_of(int fd) {
  struct statx stat;
  if (!look(fd, "", &stat) || makedev(stat.stx_dev_major, stat.stx_dev_minor) != data_device) return NULL;
  char id[ID_BYTES];
  name_inode(id, &stat);
  struct inode **bucket = &inodes[stat.stx_ino % BUCKETS];
  struct inode *inode = *bucket;
  while (inode != NULL && strcmp(inode->id, id) != 0) inode = inode->next;
  if (inode == NULL) {
    inode = calloc(1, sizeof *inode);
    if (inode == NULL) fail("memory");
    /* All of it is dirty: another process may have written it. */
    *inode = (struct inode){.watched = lies_in_data(fd), .folder = S_ISDIR(stat.stx_mode), .next = *bucket};
    inode->dirty_end = INT64_MAX;
    memcpy(inode->id, id, sizeof id);
    *bucket = inode;
  }
  return inode->watched ? inode : NULL;
}

/* Notes that bytes of a file were changed; called before the call that changed them returns. */
static void changed(int fd, off_t start, off_t end) {
  if (data[0] == '\0' || start >= end) return;
  const int error = errno;
  pthread_mutex_lock(&lock);
  struct inode *inode = inode_of(fd);
  if (inode != NULL && !inode->folder) {
    const bool clean = inode->dirty_start >= inode->dirty_end;
    if (clean || start < inode->dirty_start) inode->dirty_start = start;
    if (clean || end > inode->dirty_end) inode->dirty_end = end;
  }
  pthread_mutex_unlock(&lock);
  errno = error;
}

/* As changed, for bytes that were written at the descriptor's position, which stands behind them now. */
static void wrote_here(int fd, ssize_t bytes) {
  if (data[0] == '\0' || bytes <= 0) return;
  const int error = errno;
  const off_t end = lseek(fd, 0, SEEK_CUR);
  if (end >= bytes) changed(fd, end - bytes, end);
  errno = error;
}

static bool is_zero(const char *bytes, size_t count) {
  return count == 0 || (bytes[0] == 0 && memcmp(bytes, bytes + 1, count - 1) == 0);
}

/* Opens once more what a descriptor stands for, whatever it was opened for and whether it still has a name. */
static int reopen(int fd, int flags) {
  char link[LINK_BYTES];
  name_link(link, fd);
  const int again = REAL(open)(link, flags | O_CLOEXEC);
  if (again < 0) fail("open a watched file again");
  return again;
}

/* Brings the copy of a file up to date: its length, and the bytes that were changed. Zeros take no room. */
static void keep_file(int fd, struct inode *inode) {
  static char bytes[COPY_BYTES];
  const int from = reopen(fd, O_RDONLY);
  const int to = REAL(openat)(kept, inode->id, O_WRONLY | O_CREAT | O_CLOEXEC, 0644);
  struct statx stat;
  if (to < 0 || !look(from, "", &stat) || REAL(ftruncate)(to, (off_t)stat.stx_size) != 0) fail("keep a file");
  const off_t end = inode->dirty_end < (off_t)stat.stx_size ? inode->dirty_end : (off_t)stat.stx_size;
  for (off_t at = inode->dirty_start; at < end;) {
    const size_t wanted = end - at < COPY_BYTES ? (size_t)(end - at) : COPY_BYTES;
    const ssize_t got = pread(from, bytes, wanted, at);
    if (got <= 0) break; /* cut off meanwhile */
    const bool done = is_zero(bytes, (size_t)got)
                          ? REAL(fallocate)(to, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, at, got) == 0
                          : REAL(pwrite)(to, bytes, (size_t)got, at) == got;
    if (!done) fail("keep bytes of a file");
    at += got;
  }
  inode->dirty_start = inode->dirty_end = 0;
  close(from);
  close(to);
}

/* Makes the names kept of a folder those that it has now, all at once. If all_below, what they name is kept as well. */
static void keep_folder(int fd, const struct inode *inode, bool all_below) {
  DIR *folder = fdopendir(reopen(fd, O_RDONLY | O_DIRECTORY));
  char fresh[ID_BYTES + 8], named[ID_BYTES + 8];
  snprintf(named, sizeof named, "%s.dir", inode->id);
  snprintf(fresh, sizeof fresh, "%s.new", inode->id);
  const int to = REAL(openat)(kept, fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (folder == NULL || to < 0) fail("keep a folder");
  for (struct dirent *entry; (entry = readdir(folder)) != NULL;) {
    struct statx stat;
    if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
    if (!look(dirfd(folder), entry->d_name, &stat)) continue;
    char id[ID_BYTES], line[ID_BYTES + NAME_MAX + 4];
    name_inode(id, &stat);
    const bool is_folder = S_ISDIR(stat.stx_mode);
    const int length = snprintf(line, sizeof line, "%c%s/%s", is_folder ? 'd' : 'f', id, entry->d_name) + 1;
    if (REAL(write)(to, line, (size_t)length) != length) fail("keep a name");
    if (!all_below) continue;
    const int below = REAL(openat)(dirfd(folder), entry->d_name, O_RDONLY | O_CLOEXEC);
    struct inode *found = below < 0 ? NULL : inode_of(below);
    if (found == NULL) fail("keep what is there at the start");
    if (is_folder) keep_folder(below, found, true);
    else keep_file(below, found);
    close(below);
  }
  if (renameat(kept, fresh, kept, named) != 0) fail("keep a folder");
  close(to);
  closedir(folder);
}

/* Keeps what a flush of this descriptor that has just succeeded made durable. */
static void flushed(int fd) {
  if (data[0] == '\0') return;
  pthread_mutex_lock(&lock);
  struct inode *inode = inode_of(fd);
  if (inode != NULL && inode->folder) keep_folder(fd, inode, false);
  else if (inode != NULL) keep_file(fd, inode);
  pthread_mutex_unlock(&lock);
}

__attribute__((constructor)) static void start(void) {
  const char *watched = getenv("POWER_CUT_DATA"), *durable = getenv("POWER_CUT_KEPT"), *ignore = getenv("POWER_CUT_IGNORE");
  if (watched == NULL || durable == NULL) return;
  ignores_fdatasync = ignore != NULL && strcmp(ignore, "fdatasync") == 0;
  struct statx stat;
  const int root = REAL(open)(watched, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  kept = REAL(open)(durable, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0 || kept < 0 || !look(root, "", &stat)) fail("open POWER_CUT_DATA and POWER_CUT_KEPT");
  if (!(stat.stx_mask & STATX_BTIME)) fail("the file system does not tell when a file was made");
  data_device = makedev(stat.stx_dev_major, stat.stx_dev_minor);
  if (realpath(watched, data) == NULL) fail("path of POWER_CUT_DATA");
  struct inode *tree = inode_of(root);
  if (faccessat(kept, "tree", F_OK, AT_SYMLINK_NOFOLLOW) != 0) {
    keep_folder(root, tree, true);
    if (symlinkat(tree->id, kept, "tree") != 0) fail("keep the tree");
  }
  close(root);
}

int fsync(int fd) {
  const int answer = REAL(fsync)(fd);
  if (answer == 0) flushed(fd);
  return answer;
}

int fdatasync(int fd) {
  const int answer = REAL(fdatasync)(fd);
  if (answer == 0 && !ignores_fdatasync) flushed(fd);
  return answer;
}

/* Not while a folder is being read: a name that only moves could be missed. */
int rename(const char *from, const char *to) {
  pthread_mutex_lock(&lock);
  const int answer = REAL(rename)(from, to);
  pthread_mutex_unlock(&lock);
  return answer;
}

/* Calls that change bytes, each with what it changes once it is done. The names with 64 are the same functions. */
#define CHANGES(type, name, parameters, arguments, then)                                                                       \
  type name parameters {                                                                                                       \
    const type done = REAL(name) arguments;                                                                                    \
    then;                                                                                                                      \
    return done;                                                                                                               \
  }
#define SAME(type, name, parameters, as) type name parameters __attribute__((alias(as)));

CHANGES(ssize_t, write, (int fd, const void *bytes, size_t count), (fd, bytes, count), wrote_here(fd, done))
CHANGES(ssize_t, writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), wrote_here(fd, done))
CHANGES(ssize_t, sendfile, (int fd, int from, off_t *at, size_t count), (fd, from, at, count), wrote_here(fd, done))
SAME(ssize_t, sendfile64, (int fd, int from, off_t *at, size_t count), "sendfile")
CHANGES(ssize_t, pwrite, (int fd, const void *bytes, size_t count, off_t at), (fd, bytes, count, at),
        changed(fd, at, at + done))
SAME(ssize_t, pwrite64, (int fd, const void *bytes, size_t count, off_t at), "pwrite")
CHANGES(ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at),
        changed(fd, at, at + done))
SAME(ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off_t at), "pwritev")
CHANGES(ssize_t, copy_file_range, (int from, off_t *from_at, int fd, off_t *at, size_t count, unsigned flags),
        (from, from_at, fd, at, count, flags), at == NULL ? wrote_here(fd, done) : changed(fd, *at - done, *at))
CHANGES(int, ftruncate, (int fd, off_t length), (fd, length), changed(fd, length, done == 0 ? INT64_MAX : 0))
SAME(int, ftruncate64, (int fd, off_t length), "ftruncate")
CHANGES(int, fallocate, (int fd, int mode, off_t at, off_t length), (fd, mode, at, length), changed(fd, at, at + length))
SAME(int, fallocate64, (int fd, int mode, off_t at, off_t length), "fallocate")
CHANGES(int, posix_fallocate, (int fd, off_t at, off_t length), (fd, at, length), changed(fd, at, at + length))
SAME(int, posix_fallocate64, (int fd, off_t at, off_t length), "posix_fallocate")

/* Whatever stood in a file that is cut off by opening it is changed. */
#define OPENS(name, parameters, ...)                                                                                           \
  int name parameters {                                                                                                        \
    va_list rest;                                                                                                              \
    va_start(rest, flags);                                                                                                     \
    const mode_t mode = flags & (O_CREAT | __O_TMPFILE) ? va_arg(rest, mode_t) : 0;                                            \
    va_end(rest);                                                                                                              \
    const int fd = REAL(name)(__VA_ARGS__, flags, mode);                                                                       \
    if (fd >= 0 && flags & O_TRUNC) changed(fd, 0, INT64_MAX);                                                                 \
    return fd;                                                                                                                 \
  }
OPENS(open, (const char *path, int flags, ...), path)
OPENS(open64, (const char *path, int flags, ...), path)
OPENS(openat, (int folder, const char *path, int flags, ...), folder, path)
OPENS(openat64, (int folder, const char *path, int flags, ...), folder, path)
int creat(const char *path, mode_t mode) { return open(path, O_CREAT | O_WRONLY | O_TRUNC, mode); }
SAME(int, creat64, (const char *path, mode_t mode), "creat")
