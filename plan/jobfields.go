package plan

import (
	"cmp"
	"maps"
	"time"
)

// leaves is the one table of a job's fields. (Table of values.)
var leaves = []leaf{
	row(Field{Name: "kind", Type: TypeName, Sort: Identity, Default: "train", Example: "train",
		Doc: "What sort of work it is: train, backtest, dataset or a word of your own. A platform may take some kinds only."},
		func(j *Job) *string { return &j.Kind }, (*decoder).kind, putText),
	row(Field{Name: "code", Type: TypePath, Sort: Identity, Example: "../examples/digits",
		Doc: "Folder with the program, relative to this file, inside this repository. Its Git tree hash is identity, its path is not."},
		func(j *Job) *string { return &j.Code }, (*decoder).codePath, func(b []byte, _ string) []byte { return b }).with(
		func(b []byte, j *Job) []byte { return putText(b, j.CodeTree) }),
	row(Field{Name: "run", Type: TypeText, Sort: Identity, Example: "python3 train.py --lr ${params.lr} --seed ${seed}",
		Doc: "Command line, started in a copy of the code folder. Split at spaces; quotes keep words together; no shell takes part. ${params.NAME}, ${seed}, ${replica} and ${needs.JOB} (folder of that job's result) are filled in inside words."},
		func(j *Job) *string { return &j.Run }, (*decoder).longText, func(b []byte, _ string) []byte { return b }).with(putRun),
	mapRow(Field{Name: "params", Type: TypeMap, Sort: Identity, Example: "{lr: 0.05}",
		Doc: "Parameters of the program, by name. The text as written is what ${params.NAME} gives."},
		func(j *Job) *map[string]string { return &j.Params }, (*decoder).paramKey, (*decoder).value),
	row(Field{Name: "seed", Type: TypeInt, Sort: Identity, Default: "0", Example: "7",
		Doc: "Seed of the program's random numbers."},
		func(j *Job) *int64 { return &j.Seed }, (*decoder).int64, putInt),
	row(Field{Name: "replica", Type: TypeInt, Sort: Identity, Default: "0", Example: "1",
		Doc: "Run the same question once more: another number is other work."},
		func(j *Job) *int64 { return &j.Replica }, (*decoder).natural, putInt),
	needsRow(Field{Name: "needs", Type: TypeNames, Sort: Identity, Example: "[digits]",
		Doc: "Jobs that must be finished first and whose results this one reads. The name of a group means all its members. Identity is the digest of what they compute, not their names."}),
	mapRow(Field{Name: "requires", Type: TypeMap, Sort: Identity, Example: `{cuda: "12.4"}`,
		Doc: "Pinned fields of the environment's fingerprint. A worker that measures another value refuses the job."},
		func(j *Job) *map[string]string { return &j.Requires }, (*decoder).paramKey, (*decoder).value),
	mapRow(Field{Name: "env", Type: TypeMap, Sort: Identity, Example: "{OMP_NUM_THREADS: 4}",
		Doc: "Environment variables of the program. Never a secret."},
		func(j *Job) *map[string]string { return &j.Env }, (*decoder).envKey, (*decoder).envValue),
	row(Field{Name: "result", Type: TypePath, Sort: Identity, Default: "$HEADWAY_RESULT", Example: "out",
		Doc: "Folder in which the program leaves its result, relative to its working folder."},
		func(j *Job) *string { return &j.Result }, (*decoder).innerPath, putText),

	row(Field{Name: "on", Type: TypeNames, Sort: Placement, Default: "defaults.on", Example: "[kaggle, vast]",
		Doc: "Platforms in order of preference: the ladder."},
		func(j *Job) *[]string { return &j.On }, (*decoder).nameList, putList),
	row(Field{Name: "gpu.any", Type: TypeList, Sort: Placement, Default: "none: CPU", Example: "[T4x2, RTX_4090]",
		Doc: "Any one of these cards, by id or by a short name; a count may follow, as in T4x2. `gpu: [A100]` means the same."},
		func(j *Job) *[]string { return &j.GPU.Any }, (*decoder).gpuList, putList),
	row(Field{Name: "gpu.count", Type: TypeInt, Sort: Placement, Default: "1", Example: "2",
		Doc: "Cards for one worker."},
		func(j *Job) *int { return &j.GPU.Count }, (*decoder).positive, putInt),
	row(Field{Name: "gpu.dtype", Type: TypeText, Sort: Placement, Example: "fp16", Allowed: dtypes,
		Doc: "Math mode that the program uses: what goodput and the estimate are computed with."},
		func(j *Job) *string { return &j.GPU.DType }, (*decoder).choice, putText),
	workRow(Field{Name: "work", Type: TypeWork, Sort: Placement, Example: "{params: 124M, tokens_per_step: 65536, steps: 20000}",
		Doc: "What the run costs in floating-point operations, given or computed from the architecture."}),
	row(Field{Name: "milestones.every", Type: TypeEvery, Sort: Placement, Default: "what loses least", Example: "200 steps",
		Doc: "How often the program is asked for a snapshot: in steps or in time. Left out, it is Young's interval: by what is assumed of a snapshot and the platform, then by what was measured."},
		func(j *Job) *Milestones { return &j.Milestones }, (*decoder).every, putEvery),
	row(Field{Name: "lease.k", Type: TypeNumber, Sort: Placement, Default: "50", Example: "50",
		Doc: "Length of the lease as a multiple of the time of one step; at least 1. Left out, it is learnt from the platform, from 50 down."},
		func(j *Job) *float64 { return &j.Lease.K }, (*decoder).factor, putFloat),
	row(Field{Name: "lease.floor", Type: TypeDuration, Sort: Placement, Default: "the store's own", Example: "60s",
		Doc: "The lease is never shorter than this."},
		func(j *Job) *time.Duration { return &j.Lease.Floor }, (*decoder).duration, putDuration),
	row(Field{Name: "watch.path", Type: TypePath, Sort: Placement, Example: "checkpoints/*.pt",
		Doc: "For a program that cannot be changed: a finished file that matches this glob, relative to the working folder, is the evidence of progress."},
		func(j *Job) *string { return &j.Watch.Path }, (*decoder).innerPath, putText),
	row(Field{Name: "watch.interval", Type: TypeDuration, Sort: Placement, Example: "10m",
		Doc: "Usual time between two such files; the lease is derived from it."},
		func(j *Job) *time.Duration { return &j.Watch.Interval }, (*decoder).duration, putDuration),
	row(Field{Name: "policy", Type: TypePolicies, Sort: Placement, Example: `[{log: "CUDA out of memory", then: stop}]`,
		Doc: "What to do when an attempt fails whose output has a line that a regular expression (RE2) matches: stop ends the job, exclude keeps it off that platform from then on. The first such line counts. An attempt that succeeds has succeeded."},
		func(j *Job) *[]Policy { return &j.Policy }, (*decoder).policies, putPolicies),
	row(Field{Name: "exit_codes.retry", Type: TypeInts, Sort: Placement, Example: "[75, 137]",
		Doc: "Exit codes of the program that are the machine's doing: they cost a retry like a machine that died, and the same one twice does not end the job. A program that a signal ended has 128 and the signal's number."},
		func(j *Job) *[]int { return &j.ExitCodes.Retry }, (*decoder).exitCodes, putInts),
	row(Field{Name: "limits.retries", Type: TypeInt, Sort: Placement, Default: "5", Example: "5",
		Doc: "Attempts below their usual share of work that may be spent before the job moves down its ladder or fails. With 0 no launch that may have happened is followed by another one, whatever came of it, until a person asks with `headway launch`."},
		func(j *Job) *int { return &j.Limits.Retries }, (*decoder).retries, putInt),
	row(Field{Name: "limits.wall", Type: TypeDuration, Sort: Placement, Default: "no limit", Example: "36h",
		Doc: "Time since its first launch after which it is stopped, with its next milestone."},
		func(j *Job) *time.Duration { return &j.Limits.Wall }, (*decoder).duration, putDuration),
	row(Field{Name: "limits.paid", Type: TypeAmount, Sort: Placement, Default: "no limit", Example: "20 USD",
		Doc: "What all its launches together may cost, in the platform's own unit, never converted: what is paid in other units does not count. Without a unit: in each unit by itself. Then it is stopped, with its next milestone."},
		func(j *Job) *Money { return &j.Limits.Paid }, (*decoder).amount, putMoney),
	row(Field{Name: "limits.price", Type: TypePrice, Sort: Placement, Default: "no limit", Example: "0.45 USD/h",
		Doc: "Price per hour above which no launch is made: a dearer platform, or one whose price nobody knows, is passed over. A platform with another unit is not held against it."},
		func(j *Job) *Money { return &j.Limits.Price }, (*decoder).price, putMoney),
	row(Field{Name: "limits.parallel", Type: TypeInt, Sort: Placement, Default: "no limit", Example: "2",
		Doc: "Works of this job's group that may run at once."},
		func(j *Job) *int { return &j.Limits.Parallel }, (*decoder).positive, putInt),
	row(Field{Name: "priority", Type: TypeInt, Sort: Placement, Default: "0", Example: "10",
		Doc: "Higher goes first where places are short."},
		func(j *Job) *int { return &j.Priority }, (*decoder).int, putInt),
	row(Field{Name: "secrets", Type: TypeList, Sort: Placement, Example: "[WANDB_API_KEY]",
		Doc: "Names of environment variables that the dispatcher resolves and hands to the program. Values never stand in a file. Needs trust: datacenter or own. Names that start with HEADWAY_ or AWS_ are the dispatcher's own and refused."},
		func(j *Job) *[]string { return &j.Secrets }, (*decoder).secretNames, putList),
	row(Field{Name: "trust", Type: TypeText, Sort: Placement, Default: "any", Example: "datacenter", Allowed: trusts,
		Doc: "What sort of host may run it: any machine, a data centre's, or only your own."},
		func(j *Job) *string { return &j.Trust }, (*decoder).choice, putText),
	row(Field{Name: "on_delete", Type: TypeText, Sort: Placement, Default: "drain", Example: "revoke", Allowed: onDeletes,
		Doc: "What happens to running work when the job leaves the plan: drain stops after the next acknowledged milestone (or when none comes for three intervals, ten minutes at least), revoke stops now, orphan lets it finish."},
		func(j *Job) *OnDelete { return &j.OnDelete },
		func(d *decoder, n *node, f *Field) (OnDelete, bool) { s, ok := d.choice(n, f); return OnDelete(s), ok },
		func(b []byte, v OnDelete) []byte { return putText(b, string(v)) }),
	mapRow(Field{Name: "metrics", Type: TypeMap, Sort: Placement, Example: "{val_accuracy: higher}", Allowed: directions,
		Doc: "Numbers that the result must report, and which way is better: higher or lower."},
		func(j *Job) *map[string]string { return &j.Metrics }, (*decoder).paramKey, (*decoder).choice),
	row(Field{Name: "score.name", Type: TypeName, Sort: Placement, Example: "accuracy",
		Doc: "The number that a backtest must reach."},
		func(j *Job) *string { return &j.Score.Name }, (*decoder).name, putText),
	scoreRow(Field{Name: "score.at_least", Type: TypeNumber, Sort: Placement, Example: "0.9",
		Doc: "It must not be lower than this."},
		func(s *Score) (*float64, *bool) { return &s.AtLeast, &s.HasMin }),
	scoreRow(Field{Name: "score.at_most", Type: TypeNumber, Sort: Placement, Example: "0.1",
		Doc: "It must not be higher than this."},
		func(s *Score) (*float64, *bool) { return &s.AtMost, &s.HasMax }),

	mapRow(Field{Name: "labels", Type: TypeMap, Sort: Metadata, Example: "{team: vision}",
		Doc: "Labels for people and for selection."},
		func(j *Job) *map[string]string { return &j.Labels }, (*decoder).paramKey, (*decoder).value),
	row(Field{Name: "owner", Type: TypeText, Sort: Metadata, Example: "ada",
		Doc: "Who answers for it."},
		func(j *Job) *string { return &j.Owner }, (*decoder).text, putText),
	row(Field{Name: "notes", Type: TypeText, Sort: Metadata, Example: "baseline of the spring report",
		Doc: "Anything that a reader should know."},
		func(j *Job) *string { return &j.Notes }, (*decoder).longText, putText),
	row(Field{Name: "suspend", Type: TypeBool, Sort: Metadata, Default: "false", Example: "true",
		Doc: "Keeps everything and launches nothing; what runs goes on."},
		func(j *Job) *bool { return &j.Suspend }, (*decoder).bool, putBool),

	{Field: Field{Name: "like", Type: TypeName, Sort: Metadata, Example: "digits",
		Doc: "Copies another job's fields, of any file, before this one's own are applied: maps and composites key by key, everything else whole. A matrix is copied too, unless this job gives one of its own ({} for none)."},
		set: func(d *decoder, n *node, f *Field, e *entry) { e.like, _ = d.name(n, f) }},
	{Field: Field{Name: "matrix", Type: TypeMatrix, Sort: Metadata, Example: "{seed: [1, 2, 3]}",
		Doc: "Makes one job for every combination of values, named NAME-AXIS=VALUE with the axes in alphabetical order; NAME is their group. Axes: seed, replica, params.NAME, env.NAME."},
		set:  func(d *decoder, n *node, f *Field, e *entry) { e.axes = d.axes(n) },
		copy: func(dst, src *entry) { dst.axes = src.axes }},
}

// with replaces how a leaf is written.
func (l leaf) with(put func(b []byte, j *Job) []byte) leaf { l.put = put; return l }

func needsRow(f Field) leaf {
	return leaf{Field: f,
		set:  func(d *decoder, n *node, f *Field, e *entry) { e.needs = d.needList(n, f) },
		copy: func(dst, src *entry) { dst.needs = src.needs },
		put:  putInputs}
}

func workRow(f Field) leaf {
	return leaf{Field: f,
		set: func(d *decoder, n *node, f *Field, e *entry) { e.work = d.work(n) },
		copy: func(dst, src *entry) {
			if dst.work == nil || src.work == nil {
				dst.work = cmp.Or(dst.work, src.work)
				return
			}
			w := &workSpec{values: maps.Clone(src.work.values), pos: maps.Clone(src.work.pos)}
			maps.Copy(w.values, dst.work.values)
			maps.Copy(w.pos, dst.work.pos)
			dst.work = w
		},
		put: putWork}
}

func scoreRow(f Field, ptr func(*Score) (*float64, *bool)) leaf {
	return leaf{Field: f,
		set: func(d *decoder, n *node, f *Field, e *entry) {
			v, has := ptr(&e.job.Score)
			*v, *has = d.float(n, f)
		},
		copy: func(dst, src *entry) {
			v, has := ptr(&dst.job.Score)
			w, _ := ptr(&src.job.Score)
			*v, *has = *w, true
		},
		put: func(b []byte, j *Job) []byte {
			v, has := ptr(&j.Score)
			if !*has {
				return b
			}
			return appendFloat(b, *v)
		}}
}

// Closed lists of values. (Tables of values.)
var (
	dtypes     = []string{"fp64", "fp32", "tf32", "bf16", "fp16", "fp16_acc16", "fp8", "int8"}
	trusts     = []string{"any", "datacenter", "own"}
	onDeletes  = []string{string(Drain), string(Revoke), string(Orphan)}
	directions = []string{"higher", "lower"}
	kinds      = []string{"train", "backtest", "dataset", "evaluate"} // known words: a slip of the pen is warned about
)
