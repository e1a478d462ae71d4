package bench

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// processes are process ids.
type processes []int

// ticks is how many of the kernel's clock ticks, in which /proc counts a process's time, are in a second (USER_HZ).
const ticks = 100

// during answers how busy each process was while something was done, in percent of a core.
func (p processes) during(do func() error) ([]float64, error) {
	before, err := p.times()
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	if err := do(); err != nil {
		return nil, err
	}
	took := time.Since(begin)
	after, err := p.times()
	if err != nil {
		return nil, err
	}
	usage := make([]float64, len(p))
	for i := range p {
		usage[i] = 100 * float64(after[i]-before[i]) / float64(took)
	}
	return usage, nil
}

// times are how long the processes have run on a processor, in the kernel and outside.
func (p processes) times() ([]time.Duration, error) {
	times := make([]time.Duration, len(p))
	for i, pid := range p {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			return nil, fmt.Errorf("read a process's time: %w", err)
		}
		if times[i], err = timeIn(string(text)); err != nil {
			return nil, err
		}
	}
	return times, nil
}

// timeIn reads utime and stime in a process's stat (proc_pid_stat(5)), the 14th and 15th field. The second is a name in
// brackets, which may hold anything.
func timeIn(stat string) (time.Duration, error) {
	const utime, stime = 14 - 3, 15 - 3 // from the third field on
	end := strings.LastIndexByte(stat, ')')
	fields := strings.Fields(stat[end+1:])
	if end < 0 || len(fields) <= stime {
		return 0, fmt.Errorf("read a process's time from %q", stat)
	}
	var sum int64
	for _, field := range []string{fields[utime], fields[stime]} {
		count, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("read a process's time: %w", err)
		}
		sum += count
	}
	return time.Duration(sum) * time.Second / ticks, nil
}

// memory is the most that any of them holds, in MB.
func (p processes) memory() (float64, error) {
	most := 0.0
	for _, pid := range p {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
		if err != nil {
			return 0, fmt.Errorf("read a process's memory: %w", err)
		}
		var size, resident int
		if _, err := fmt.Sscan(string(text), &size, &resident); err != nil {
			return 0, fmt.Errorf("read a process's memory: %w", err)
		}
		most = max(most, float64(resident*os.Getpagesize())/(1<<20))
	}
	return most, nil
}
