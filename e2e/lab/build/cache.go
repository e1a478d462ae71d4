package build

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// needFree is what the first build takes at its worst: sources, Go's build cache, temporary objects and the program.
const needFree = 10 << 30

// CacheDir answers the folder that holds everything the lab leaves on the machine: BERTH_CACHE, or a folder of the
// user's cache folder. It need not exist yet.
func CacheDir() (string, error) {
	if dir := os.Getenv("BERTH_CACHE"); dir != "" {
		return filepath.Abs(dir)
	}
	base, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find a folder for the lab's programs: %w: set BERTH_CACHE to one", err)
	}
	return filepath.Join(base, "berth"), nil
}

// checkFree answers an error with the figure and the remedy if the cache folder's file system is short of space.
func checkFree(dir string) error {
	var stat unix.Statfs_t
	if err := unix.Statfs(dir, &stat); err != nil {
		return fmt.Errorf("ask for the free space of %s: %w", dir, err)
	}
	free := stat.Bavail * uint64(stat.Bsize) //nolint:gosec // a block size is positive
	if free < needFree {
		return fmt.Errorf("%s has %.1f GiB free and the first build needs %d GiB: set BERTH_CACHE to a folder with more",
			dir, float64(free)/(1<<30), needFree>>30)
	}
	return nil
}

// lock takes the cache's lock file and answers what gives it back. While somebody else builds it waits and says so.
func lock(ctx context.Context, dir string, out io.Writer) (release func(), err error) {
	file, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR|unix.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, fmt.Errorf("open the cache's lock: %w", err)
	}
	start, told := time.Now(), time.Time{}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { file.Close() }, nil
		}
		if !errors.Is(err, unix.EWOULDBLOCK) {
			file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		if time.Since(told) > progressEvery {
			told = time.Now()
			fmt.Fprintf(out, "waiting for another build that holds %s: %.0f s\n", file.Name(), time.Since(start).Seconds())
		}
		select {
		case <-ctx.Done():
			file.Close()
			return nil, ctx.Err()
		case <-time.After(200 * time.Millisecond):
		}
	}
}
