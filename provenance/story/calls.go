package story

import (
	"slices"

	"github.com/skillsd/skillsd/provenance/cfharness"
)

// Calls links the steps of a session to calls. Its size grows with the number of calls. The zero Calls is
// ready to use; it is not safe for concurrent use.
type Calls struct {
	byID  map[string]*call
	asked []*call // questions without an answer
}

// call is the part of a call that later steps are compared with.
type call struct {
	first             uint64
	skill, path, tree string
}

// Add links s, which must be the next step of the session.
func (c *Calls) Add(s *Step) {
	id := s.Call
	// Records of earlier servers have no calls.
	if id == "" {
		id = cfharness.OutputID(s.Event)
	}
	of := c.byID[id]
	known := of != nil
	if !known {
		of = &call{first: s.Seq, skill: s.Skill, path: s.Path}
		c.name(id, of)
	}
	switch s.Action {
	case Asked:
		of.tree = s.Want
		c.asked = append(c.asked, of)
	case Answered:
		if open := c.questions(s, of); len(open) == 1 {
			// The client called again with the answer: for a reader, both calls are one.
			if known {
				s.Joins = of.first
			}
			of = open[0]
			c.name(id, of)
		} else {
			for _, question := range open {
				s.Questions = append(s.Questions, question.first)
			}
		}
		c.asked = slices.DeleteFunc(c.asked, func(question *call) bool { return question == of })
	}
	s.First = of.first
}

// name makes later events with an id part of a call. An event without an id is a call of its own.
func (c *Calls) name(id string, of *call) {
	if id == "" {
		return
	}
	if c.byID == nil {
		c.byID = map[string]*call{}
	}
	c.byID[id] = of
}

// questions returns the questions of other calls that an answer in the call of may be about. The events of a
// question and of its answer have the same call, so these are only in records without calls.
func (c *Calls) questions(s *Step, of *call) (open []*call) {
	if s.Call != "" {
		return nil
	}
	for _, q := range c.asked {
		if q != of && q.skill == s.Skill && q.path == s.Path && q.tree == s.Want {
			open = append(open, q)
		}
	}
	return open
}
