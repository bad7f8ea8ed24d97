package search

// The searched fields of a skill. The instructions are a list of their own, since their many words would cost
// the others ranks.
const (
	fieldName = iota
	fieldPath
	fieldTags
	fieldDescription
	fieldWhen
	fieldLead
	fieldText // of the second list
	fields
)

// Limits on the searched text of a skill, so that one skill cannot fill the index.
const (
	maxField   = 4 << 10 // bytes of each field
	maxLead    = 500     // bytes of the beginning of the instructions among the fields
	maxOfSkill = 1_024   // distinct terms, in the order of the fields
)

// The parameters of BM25F: k1, the weight of each field, and b of each field.
const saturation = 1.2

var (
	// In the order name, path, tags, description, when, lead, text.
	fieldWeight = [fields]float32{5, 2.5, 3, 1, 1, 0.3, 1}
	lengthCost  = [fields]float32{0.6, 0.3, 0.3, 0.6, 0.6, 0.6, 0.6}
)

// A whole word has twice the frequency of a part of a compound.
const (
	wholeCount = 2
	partCount  = 1
)

// Weights of words that differ from the word of the query.
const (
	asStem      = 0.85 // the same stem
	asBeginning = 0.5  // begins with the term, if no skill has the term itself
	asOther     = 0.2  // begins with the term, if other skills have the term itself
	asShorter   = 0.4  // is a prefix with most of the term
)

// exactBonus ranks a skill whose name or path equals the query above all skills that only contain it.
const exactBonus = 100

// The fusion of two rankings by reciprocal rank: the instructions lift a skill that the fields rank too low.
const (
	fusedOf    = 200 // places by the fields that are fused
	fusedText  = 50  // best skills by their instructions
	rankOffset = 10
	textWeight = 0.5
)
