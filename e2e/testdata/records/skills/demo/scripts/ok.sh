#!/bin/bash
echo ran-ok "$@"
