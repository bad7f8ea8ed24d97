package install

// SetStep sets a function that is called before each step that changes something.
func (i *Installer) SetStep(step func(name string) error) { i.step = step }
