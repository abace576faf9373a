// SPDX-FileCopyrightText: The Setpoint Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
	_ "time/tzdata" // for a machine without time zones

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/setpoint-dev/setpoint/controller"
	v1 "github.com/setpoint-dev/setpoint/examples/cronjob/api/v1"
)

// day is the day of all unit tests.
var day = time.Date(2026, time.March, 4, 0, 0, 0, 0, time.UTC)

// at returns a time of the day, such as 10:05.
func at(hour, minute int) time.Time {
	return day.Add(time.Duration(hour)*time.Hour + time.Duration(minute)*time.Minute)
}

// hourly returns a CronJob that was created at 09:30 and runs at each full hour.
func hourly() *v1.CronJob {
	cj := &v1.CronJob{Spec: v1.CronJobSpec{Schedule: "0 * * * *", ConcurrencyPolicy: v1.AllowConcurrent}}
	cj.Namespace, cj.Name, cj.UID, cj.Generation = "default", "report", "uid-of-report", 3
	cj.CreationTimestamp = metav1.NewTime(at(9, 30))
	return cj
}

func TestNextSchedule(t *testing.T) {
	never := time.Time{}
	for name, c := range map[string]struct {
		change             func(*v1.CronJob)
		now                time.Time
		due, expired, next time.Time
	}{
		"no run since the creation":             {now: at(9, 59), due: never, next: at(10, 0)},
		"a run is due from its minute on":       {now: at(10, 0), due: at(10, 0), next: at(11, 0)},
		"of several missed runs, the newest":    {now: at(13, 30), due: at(13, 0), next: at(14, 0)},
		"the clock is behind the creation":      {now: at(8, 15), due: never, next: at(9, 0)},
		"nothing is due after the last run":     {last(at(10, 0)), at(10, 1), never, never, at(11, 0)},
		"the last run counts, not the creation": {last(at(10, 0)), at(11, 0), at(11, 0), never, at(12, 0)},
		"a last run in the future":              {last(at(15, 0)), at(11, 30), never, never, at(12, 0)},
		"100 missed runs":                       {last(at(10, 0).Add(-100 * time.Hour)), at(10, 0), at(10, 0), never, at(11, 0)},
		"within the deadline":                   {deadline(60), at(10, 0).Add(59 * time.Second), at(10, 0), never, at(11, 0)},
		"at the deadline":                       {deadline(60), at(10, 1), never, at(10, 0), at(11, 0)},
		"runs past the deadline, and one due":   {deadline(60), at(12, 0), at(12, 0), at(10, 0), at(13, 0)},
		"a deadline of 0 allows no run":         {deadline(0), at(10, 0), never, at(10, 0), at(11, 0)},
		"the longest deadline":                  {deadline(math.MaxInt64), at(10, 1), at(10, 0), never, at(11, 0)},
		"a deadline bounds the missed runs": {
			func(cj *v1.CronJob) { last(at(10, 0).Add(-1000 * time.Hour))(cj); deadline(3600)(cj) },
			at(10, 30), at(10, 0), at(11, 0).Add(-1000 * time.Hour), at(11, 0),
		},
		"an interval instead of fields": {
			func(cj *v1.CronJob) { cj.Spec.Schedule = "@every 90m" },
			at(11, 0), at(11, 0), never, at(12, 30),
		},
	} {
		t.Run(name, func(t *testing.T) {
			cj := hourly()
			if c.change != nil {
				c.change(cj)
			}
			due, expired, next, err := nextSchedule(cj, c.now)
			if err != nil || !due.Equal(c.due) || !expired.Equal(c.expired) || !next.Equal(c.next) {
				t.Errorf("due %s, expired %s, next %s, error %v;\nwant due %s, expired %s, next %s", due, expired, next, err, c.due, c.expired, c.next)
			}
		})
	}
}

// The schedule is in the time zone of the clock. On 29 March 2026 Berlin has no 02:30.
func TestNextSchedule_UsesTheTimeZoneOfTheClock(t *testing.T) {
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	cj := hourly()
	cj.Spec.Schedule = "30 2 * * *"
	due, _, next, err := nextSchedule(cj, time.Date(2026, time.March, 28, 12, 0, 0, 0, berlin))
	if want := time.Date(2026, time.March, 28, 2, 30, 0, 0, berlin); err != nil || !due.Equal(want) {
		t.Errorf("due %s, %v; want %s", due, err, want)
	}
	if want := time.Date(2026, time.March, 30, 2, 30, 0, 0, berlin); !next.Equal(want) {
		t.Errorf("next %s, want %s", next, want)
	}
}

func TestDecide_SchedulesThatOnlyAChangeCanFix(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*v1.CronJob)
		reason string
		words  string
	}{
		"not cron":                  {func(cj *v1.CronJob) { cj.Spec.Schedule = "soon" }, reasonInvalidSchedule, `"soon"`},
		"30 February":               {func(cj *v1.CronJob) { cj.Spec.Schedule = "0 0 30 2 *" }, reasonInvalidSchedule, "no time"},
		"101 missed runs":           {last(at(10, 0).Add(-101 * time.Hour)), reasonTooManyMissed, "too many missed starts"},
		"as many within a deadline": {func(cj *v1.CronJob) { cj.Spec.Schedule = "* * * * *"; deadline(7200)(cj); last(at(1, 0))(cj) }, reasonTooManyMissed, "startingDeadlineSeconds"},
	} {
		t.Run(name, func(t *testing.T) {
			cj := hourly()
			c.change(cj)
			p, err := decide(cj, &children{}, at(10, 30))
			var cause *problem
			if !errors.As(err, &cause) || cause.reason != c.reason || !strings.Contains(err.Error(), c.words) || !controller.IsTerminal(err) {
				t.Errorf("error %v; want a terminal one with the reason %s and %q", err, c.reason, c.words)
			}
			if p != (plan{}) {
				t.Errorf("the plan is %+v, want none", p)
			}
		})
	}
}

func TestDecide_Policies(t *testing.T) {
	active := &children{active: []*batchv1.Job{{}}}
	for name, c := range map[string]struct {
		policy v1.ConcurrencyPolicy
		jobs   *children
		now    time.Time
		want   plan
	}{
		"Allow starts next to the active Job": {v1.AllowConcurrent, active, at(10, 5), plan{run: at(10, 0), wait: 55 * time.Minute}},
		"Forbid waits for the active Job":     {v1.ForbidConcurrent, active, at(10, 5), plan{wait: 55 * time.Minute}},
		"Forbid starts without an active Job": {v1.ForbidConcurrent, &children{}, at(10, 5), plan{run: at(10, 0), wait: 55 * time.Minute}},
		"Replace deletes the active Job":      {v1.ReplaceConcurrent, active, at(10, 5), plan{run: at(10, 0), replace: true, wait: 55 * time.Minute}},
		"Replace has nothing to delete":       {v1.ReplaceConcurrent, &children{}, at(10, 5), plan{run: at(10, 0), wait: 55 * time.Minute}},
		"nothing is due":                      {v1.AllowConcurrent, active, at(9, 40), plan{wait: 20 * time.Minute}},
		"Replace does nothing if none is due": {v1.ReplaceConcurrent, active, at(9, 40), plan{wait: 20 * time.Minute}},
		"Forbid does nothing if none is due":  {v1.ForbidConcurrent, active, at(9, 40), plan{wait: 20 * time.Minute}},
		"the wait ends at the next run":       {v1.AllowConcurrent, &children{}, at(9, 59).Add(59 * time.Second), plan{wait: time.Second}},
	} {
		t.Run(name, func(t *testing.T) {
			cj := hourly()
			cj.Spec.ConcurrencyPolicy = c.policy
			if got, err := decide(cj, c.jobs, c.now); err != nil || got != c.want {
				t.Errorf("the plan is %+v, %v; want %+v", got, err, c.want)
			}
		})
	}
}

func last(at time.Time) func(*v1.CronJob) {
	return func(cj *v1.CronJob) { cj.Status.LastScheduleTime = &metav1.Time{Time: at} }
}

func deadline(seconds int64) func(*v1.CronJob) {
	return func(cj *v1.CronJob) { cj.Spec.StartingDeadlineSeconds = &seconds }
}
