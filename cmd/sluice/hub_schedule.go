package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/pflag"

	"github.com/sluice-dev/sluice/internal/backup"
)

// backupRetry is the longest time from a backup that failed to the next try.
const backupRetry = time.Minute

// backupSchedule makes backups of an embedded hub while it is served, and keeps the last ones.
type backupSchedule struct {
	hubBackup
	every  time.Duration
	dir    string
	keep   int
	logger *slog.Logger
	// last is when the newest backup was made, in seconds of Unix time; zero if there is none.
	last prometheus.Gauge
}

func (s *backupSchedule) bind(flags *pflag.FlagSet) {
	flags.DurationVar(&s.every, "backup-every", 0, "time between two backups of the embedded hub; 0 makes none")
	flags.StringVar(&s.dir, "backup-dir", "", "folder for backups of the embedded hub, on another disk")
	flags.StringVar(&s.key, "backup-key", "", "file with the key that backups are sealed for; the public one is enough (sluice hub key)")
	flags.IntVar(&s.keep, "keep-backups", 14, "how many backups are kept; the oldest go first, 0 means all")
}

// check returns an error if the flags cannot be used with an embedded hub.
func (s *backupSchedule) check(dataDir string) error {
	switch {
	case s.every == 0 && (s.dir != "" || s.key != ""):
		return errors.New("--backup-dir and --backup-key: no backups are made without --backup-every")
	case s.every == 0:
		return nil
	case s.every < time.Second || s.keep < 0:
		return fmt.Errorf("--backup-every %s, --keep-backups %d: want at least a second, and no negative number", s.every, s.keep)
	case s.dir == "" || s.key == "":
		return errors.New("--backup-every: needs --backup-dir and --backup-key")
	case isBelow(s.dir, dataDir):
		return fmt.Errorf("--backup-dir %s: is in the data folder, and would be lost with it", s.dir)
	}
	if _, err := backup.Recipients(s.key); err != nil {
		return fmt.Errorf("--backup-key: %w", err)
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return fmt.Errorf("--backup-dir: %w", err)
	}
	return nil
}

// register registers the metrics.
func (s *backupSchedule) register(registry prometheus.Registerer) error {
	s.last = prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_hub_backup_timestamp_seconds", Help: "When the newest backup of the embedded hub was made; 0 if there is none.",
	})
	return errors.Join(
		registry.Register(s.last),
		registry.Register(prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "sluice_hub_backup_interval_seconds", Help: "Time between two backups of the embedded hub.",
		}, func() float64 { return s.every.Seconds() })),
	)
}

// Start makes backups until the context ends: the first when the newest in the folder is old enough, or at once. One that
// fails is logged, and tried again.
func (s *backupSchedule) Start(ctx context.Context) error {
	s.clear()
	wait := time.Duration(0)
	if newest, ok := s.newest(time.Now()); ok {
		s.last.Set(float64(newest.Unix()))
		wait = time.Until(newest.Add(s.every))
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
		wait = s.every
		if err := s.once(ctx, time.Now().UTC()); err != nil && ctx.Err() == nil {
			s.logger.Error("the hub was not backed up", "error", err)
			wait = min(s.every, backupRetry)
		}
	}
}

// once makes a backup that is begun now, and removes those that are not kept. One that cannot be removed is logged.
func (s *backupSchedule) once(ctx context.Context, now time.Time) error {
	path := filepath.Join(s.dir, now.Format(backupName))
	made, err := s.write(ctx, path)
	if err != nil {
		return err
	}
	s.last.Set(float64(made.Taken.Unix()))
	s.logger.Info("backed the hub up", "file", path, "resources", made.Resources, "took", time.Since(now).Round(time.Millisecond).String())
	all := s.made(now)
	if s.keep == 0 || len(all) <= s.keep {
		return nil
	}
	for _, old := range all[:len(all)-s.keep] {
		if err := os.Remove(filepath.Join(s.dir, old.Format(backupName))); err != nil {
			s.logger.Error("an old backup cannot be removed", "error", err)
		}
	}
	return nil
}

// backupName is the layout of the names of backups, by the time when each was begun, in UTC.
const backupName = "sluice-20060102T150405Z.backup"

// newest returns the time of the newest backup in the folder, if there is one that is not dated after now.
func (s *backupSchedule) newest(now time.Time) (at time.Time, ok bool) {
	made := s.made(now)
	if len(made) == 0 || made[len(made)-1].After(now) {
		return time.Time{}, false
	}
	return made[len(made)-1], true
}

// made returns the times of the backups in the folder, the oldest first. Those dated after now come before all others:
// they were made while the clock was ahead, and would otherwise outlive all that are made until the clock has caught up.
func (s *backupSchedule) made(now time.Time) (times []time.Time) {
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		s.logger.Error("the backups cannot be listed", "error", err)
	}
	for _, entry := range entries {
		if at, err := time.Parse(backupName, entry.Name()); err == nil {
			times = append(times, at)
		}
	}
	slices.SortFunc(times, time.Time.Compare)
	ahead := slices.IndexFunc(times, func(at time.Time) bool { return at.After(now) })
	if ahead < 0 {
		return times
	}
	return slices.Concat(times[ahead:], times[:ahead])
}

// clear removes parts of backups during which Sluice was killed.
func (s *backupSchedule) clear() {
	prefix, _, _ := strings.Cut(backupName, "2006")
	parts, _ := filepath.Glob(filepath.Join(s.dir, "."+prefix+"*.backup*")) // the pattern is valid
	for _, part := range parts {
		_ = os.Remove(part) // it costs room only
	}
}
